-- Returns the first reply again if the append was made before: if the ring of append ids (see remember_append) holds its
-- name. Its seqs are counted back from the last seq. It is a duplicate unless this very call, now resent, made it: then
-- the three bytes after the name are equal, too.
-- The time to live is rewritten unchanged: in Redis 8, WAIT on a connection that has written nothing does not wait. This
-- write is allowed when memory is short.
-- READS state token fresh ids total counters overtaking
-- SETS b c d known_epoch oldest ring name at
--- @include append_ring
local name = string.sub(token, 1, 7)
local at = string.find(ring, name, -192, true)
while at and at % 12 ~= 1 do at = string.find(ring, name, at + 1, true) end
if at then -- [known]
  local state_expires_ms = redis.call('PEXPIRETIME', state)
  if state_expires_ms > 0 then redis.call('PEXPIREAT', state, state_expires_ms) end -- [waited for]
  if overtaking then redis.call('HSET', state, 'resent', overtaking) end -- [known, and fenced]
  local function entry(at)
    local high, low = string.byte(ring, at + 10, at + 11)
    return (high % 128) * 256 + low, high >= 128 and 1 or 0
  end
  local last_seq = tonumber(total)
  for newer = at + 12, #ring, 12 do last_seq = last_seq - entry(newer) end
  local count, began = entry(at)
  local is_own = fresh >= '2' and string.sub(ring, at + 7, at + 9) == string.sub(token, 8, 10) -- [sent again]
  return {counters, last_seq - count + 1, last_seq, began, is_own and 0 or 1, known_epoch}
end

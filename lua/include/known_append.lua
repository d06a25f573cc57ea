-- Returns the first reply again if the append was made before: if the ring of append ids (see remember_append) holds its
-- name, or those of its memory that have left the ring (see keep_older) if it is resent. Its seqs are counted back from
-- the last seq. It is a duplicate unless this very call, now resent, made it: then
-- the three bytes after the name are equal, too.
-- The time to live is rewritten unchanged: in Redis 8, WAIT on a connection that has written nothing does not wait. This
-- write is allowed when memory is short.
-- READS state token fresh ids total counters overtaking
-- SETS b c d known_epoch oldest ring name at known_seq
--- @include append_ring
local name = string.sub(token, 1, 7)
local at = string.find(ring, name, -192, true) or overtaking and string.find(ring, name, 1, true) -- [the last 16]
while at and at % 12 ~= 1 do at = string.find(ring, name, at + 1, true) end
local known_seq = tonumber(total)
if at then
  for newer = at + 12, #ring, 12 do
    local high, low = string.byte(ring, newer + 10, newer + 11)
    known_seq = known_seq - (high % 128) * 256 - low
  end
elseif overtaking then -- [left the ring]
  ring = redis.call('HGET', state, 'ids:' .. string.byte(token, 8)) or ''
  at = string.find(ring, name, 1, true)
  while at and at % 24 ~= 1 do at = string.find(ring, name, at + 1, true) end
  known_seq = at and tonumber(string.sub(ring, at + 12, at + 23))
end
if at then -- [known]
  local state_expires_ms = redis.call('PEXPIRETIME', state)
  if state_expires_ms > 0 then redis.call('PEXPIREAT', state, state_expires_ms) end -- [waited for]
  if overtaking then redis.call('HSET', state, 'resent', overtaking) end -- [known, and fenced]
  local high, low = string.byte(ring, at + 10, at + 11)
  local count, began = (high % 128) * 256 + low, high >= 128 and 1 or 0
  local is_own = fresh >= '2' and string.sub(ring, at + 7, at + 9) == string.sub(token, 8, 10) -- [sent again]
  return {counters, known_seq - count + 1, known_seq, began, is_own and 0 or 1, known_epoch}
end

-- Moves messages of the window into the originals, one field each, and puts a shorter message in the place of each; if the
-- window is still as the caller saw it, appends aside. This is no use of the session: its expiry stays.
-- KEYS
--   messages
--   state
--   originals
-- ARGV
--   epoch
--   first_seq    of the window, as the caller saw it
--   edited       as the caller saw it; - for none
--   nonce        the new value of edited; identifies this call when resent
--   more_tokens  change of the counted tokens in the window; then per message: place, size, stamp, field, shorter element
-- FIELDS reads epoch counters edited large_bytes
--   writes counters edited large_bytes
-- REPLY 1 moved, 0 the window has changed
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals = unpack(KEYS)
local epoch, first_seq, edited, nonce, more_tokens = unpack(ARGV, 1, 5)
local counters, seen_epoch, seen_edited, large = unpack(redis.call('HMGET', state, 'counters', 'epoch', 'edited', 'large_bytes'))
if seen_edited == nonce then return 1 end -- [made before]
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters = counters or ''
--- @include counters
if window_first_seq ~= first_seq then return 0 end -- [the window]
if (seen_edited or '-') ~= edited then return 0 end -- [edited since]
redis.call('HLEN', originals) -- of a foreign type, it is refused before the first write
local moved, large_bytes = {}, tonumber(large or 0) or 0
for at = 6, #ARGV, 5 do
  local place, size, stamp, field, shorter = unpack(ARGV, at, at + 4)
  local element = redis.call('LINDEX', messages, place) or ''
  -- After a failover that lost appends, others may have taken their seqs.
  if #element ~= tonumber(size) or string.sub(element, -9) ~= stamp then return 0 end -- [as it was read]
  moved[#moved + 1], moved[#moved + 2] = field, element
  large_bytes = large_bytes - #element + (#shorter > 4096 and #shorter or 0)
end
redis.call('HSET', originals, unpack(moved))
redis.call('PEXPIREAT', originals, expires_ms) -- [expiry]
if not string.find(policy, 'b', 1, true) then policy = '~b' .. string.sub(policy, 2) end -- [bodies]
counters = string.format('v1 %s %s %d %s %s%s%s%s%s',
  window_first_seq, total, math.max(0, window_tokens + more_tokens), active_ms, expires_ms, uncounted, hidden, policy, evicting)
redis.call('HSET', state, 'counters', counters, 'edited', nonce, 'large_bytes', math.max(0, large_bytes))
for at = 6, #ARGV, 5 do redis.call('LSET', messages, ARGV[at], ARGV[at + 4]) end
return 1

-- Drops the oldest messages of the window, and all originals before them, if the window is still the one the caller saw.
-- KEYS
--   messages
--   state
--   originals
-- ARGV
--   epoch
--   first_seq   of the window, as the caller saw it
--   count       messages to drop
--   tokens      of these messages
--   nonce       of this prune: sent again, it is known
-- REPLY 1 dropped, 0 the window has changed
-- ERROR CORRUPT
local messages, state, originals = unpack(KEYS)
local epoch, first_seq, count, tokens, nonce = unpack(ARGV)
local seen = redis.call('HMGET', state, 'epoch', 'counters', 'pruned')
if seen[3] == nonce then return 1 end
if seen[1] ~= epoch then return 0 end
local seen_first_seq, total, old_tokens, times = string.match(seen[2] or '', '^(%d+) (%d+) (%d+) (%d+ %d+ ?%a*)$')
if not times then return redis.error_reply('CORRUPT counters') end
if seen_first_seq ~= first_seq or redis.call('LLEN', messages) < tonumber(count) then return 0 end
local left_tokens = math.max(0, old_tokens - tokens)
-- A removal first: once it has written, a script may go on where memory is short. The messages last: all else does no
-- harm twice, as where a crash has cut the server's log within these writes.
redis.call('DEL', originals)
redis.call('HSET', state, 'counters', string.format('%d %s %d %s', first_seq + count, total, left_tokens, times),
  'pruned', nonce)
redis.call('LTRIM', messages, count, -1)
return 1

-- Drops the oldest messages of the window, and all originals before them, if the window is still as the caller saw it.
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
-- FIELDS reads epoch counters pruned
--   writes counters pruned
-- REPLY 1 dropped, 0 the window has changed
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals = unpack(KEYS)
local epoch, first_seq, count, tokens, nonce = unpack(ARGV)
local seen_epoch, counters, pruned = unpack(redis.call('HMGET', state, 'epoch', 'counters', 'pruned'))
if pruned == nonce then return 1 end -- [made before]
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters = counters or ''
--- @include counters
if window_first_seq ~= first_seq then return 0 end -- [the window]
if redis.call('LLEN', messages) < tonumber(count) then return 0 end
local left_tokens = math.max(0, window_tokens - tokens) -- [tokens]
-- A removal first: once it has written, a script may go on when memory is short. The messages last: all else does no
-- harm twice, as when a crash has cut the server's log within these writes.
redis.call('DEL', originals) -- [originals]
counters = string.format('v1 %d %s %d %s %s%s',
  first_seq + count, total, left_tokens, active_ms, expires_ms, evicting) -- [chosen]
redis.call('HSET', state, 'counters', counters, 'pruned', nonce)
redis.call('LTRIM', messages, count, -1)
return 1

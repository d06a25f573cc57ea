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
local seen = redis.call('HMGET', state, 'epoch', 'first_seq', 'tokens', 'pruned')
if seen[4] == nonce then return 1 end
if seen[1] ~= epoch or seen[2] ~= first_seq then return 0 end
if not tonumber(seen[3]) then return redis.error_reply('CORRUPT tokens') end
redis.call('LTRIM', messages, count, -1)
redis.call('HSET', state, 'first_seq', first_seq + count, 'tokens', seen[3] - tokens, 'pruned', nonce)
redis.call('DEL', originals)
return 1

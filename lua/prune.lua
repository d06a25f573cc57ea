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
-- REPLY 1 dropped, 0 the window has changed
-- ERROR
local messages, state, originals = unpack(KEYS)
local epoch, first_seq, count, tokens = unpack(ARGV)
local seen = redis.call('HMGET', state, 'epoch', 'first_seq', 'tokens')
if seen[1] ~= epoch or seen[2] ~= first_seq then return 0 end
redis.call('LTRIM', messages, count, -1)
redis.call('HSET', state, 'first_seq', first_seq + count, 'tokens', seen[3] - tokens)
redis.call('DEL', originals)
return 1

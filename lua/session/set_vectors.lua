-- Keeps what the messages of a block mean beside it, if it is still the block that the vectors were made of.
-- KEYS
--   originals
-- ARGV
--   block     its number
--   found     the block as it was read
--   vectors
-- FIELDS
-- REPLY 1 they are kept, 0 it is another block, or none
-- ERROR
local originals = unpack(KEYS)
local block, found, vectors = unpack(ARGV)
if redis.call('HGET', originals, block) ~= found then return 0 end
redis.call('HSET', originals, 'v' .. block, vectors)
redis.call('HDEL', originals, 'w' .. block)
return 1

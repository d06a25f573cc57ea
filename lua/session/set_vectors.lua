-- Stores the vectors of a block's messages beside the block, if it has not changed since it was read.
-- KEYS
--   originals
-- ARGV
--   block     number of the block
--   stored    number under which it is stored: its own, or that of the merged block that contains it
--   seen      the stored block as read
--   vectors
-- FIELDS
-- REPLY 1 stored, 0 the block has changed, or is gone
-- ERROR
local originals = unpack(KEYS)
local block, stored, seen, vectors = unpack(ARGV)
if redis.call('HGET', originals, stored) ~= seen then return 0 end
redis.call('HSET', originals, 'v' .. block, vectors)
return 1

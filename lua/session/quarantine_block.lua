-- Moves an unreadable block of originals into quarantine, if it has not changed since it was read. The copy names the owner.
-- KEYS
--   state
--   originals
--   vectors
--   quarantine_originals
-- ARGV
--   block            number of the block
--   seen             the block as read
--   idle_timeout_ms  time to live in quarantine; then the fields of its signatures and vectors
-- FIELDS reads owner
-- REPLY 1 moved, 0 the block has changed, or is gone
-- ERROR
local state, originals, vectors, quarantine_originals = unpack(KEYS)
local block, seen, idle_timeout_ms = unpack(ARGV, 1, 3)
if redis.call('HGET', originals, block) ~= seen then return 0 end -- [as it was read]
local owner = redis.call('HGET', state, 'owner')
if owner then redis.call('HSET', quarantine_originals, 'owner', owner) end
redis.call('HSET', quarantine_originals, block, seen) -- [quarantined]
redis.call('PEXPIRE', quarantine_originals, idle_timeout_ms)
--- @include drop_vectors
redis.call('HDEL', originals, block, unpack(ARGV, 4)) -- [gone from here]
return 1

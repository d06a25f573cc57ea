-- Puts a block of the originals that cannot be read into quarantine, alone, if it is still the one that was read.
-- KEYS
--   originals
--   vectors
--   quarantine_originals
-- ARGV
--   block            its number
--   found            the block as it was read
--   idle_timeout_ms  the time to live there
-- FIELDS
-- REPLY 1 it is in quarantine, 0 it is another one, or none
-- ERROR
local originals, vectors, quarantine_originals = unpack(KEYS)
local block, found, idle_timeout_ms = unpack(ARGV)
if redis.call('HGET', originals, block) ~= found then return 0 end -- [as it was read]
redis.call('HSET', quarantine_originals, block, found) -- [quarantined]
redis.call('PEXPIRE', quarantine_originals, idle_timeout_ms)
--- @include drop_vectors
redis.call('HDEL', originals, block, 's' .. block, 'v' .. block) -- [gone from here]
return 1

-- Sets or removes the pause of a provider, if the stored pause is still the one that was read.
-- KEYS
--   providers
-- ARGV
--   provider
--   seen      the pause as read; empty for none
--   value     the new pause; empty for none
--   keep_ms   time to live of all pauses
-- FIELDS
-- REPLY the pause stored now; empty for none
-- ERROR
local providers = unpack(KEYS)
local provider, seen, value, keep_ms = unpack(ARGV)
local stored = redis.call('HGET', providers, provider) or ''
if stored ~= seen then return stored end -- [as it was seen]
-- Removal first: a script that has written may continue when memory is short.
redis.call('HDEL', providers, provider) -- [asked again]
if value ~= '' then redis.call('HSET', providers, provider, value) end -- [paused]
redis.call('PEXPIRE', providers, keep_ms) -- [kept for a while]
return value

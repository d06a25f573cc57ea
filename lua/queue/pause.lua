-- Notes that a provider is paused, or is to be asked again, if nobody has noted anything else meanwhile.
-- KEYS
--   providers
-- ARGV
--   provider
--   seen      what was noted of it, as it was read; empty for nothing
--   value     what is noted from now on; empty for nothing
--   keep_ms   the time to live of all that is noted
-- FIELDS
-- REPLY what is noted now; empty for nothing
-- ERROR
local providers = unpack(KEYS)
local provider, seen, value, keep_ms = unpack(ARGV)
local noted = redis.call('HGET', providers, provider) or ''
if noted ~= seen then return noted end -- [as it was seen]
-- A removal first: once it has written, a script may go on when memory is short.
redis.call('HDEL', providers, provider) -- [asked again]
if value ~= '' then redis.call('HSET', providers, provider, value) end -- [paused]
redis.call('PEXPIRE', providers, keep_ms) -- [kept for a while]
return value

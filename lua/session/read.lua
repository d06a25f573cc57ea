-- Reads state and window. Works when memory has run out, unlike a transaction, which the server then refuses.
-- KEYS
--   messages
--   state
-- ARGV
--   first  place of the first message, counted from the end if negative
--   last
-- FIELDS reads all
-- REPLY state, as alternating fields and values; messages
-- ERROR
local messages, state = unpack(KEYS)
local first, last = unpack(ARGV)
return {redis.call('HGETALL', state), redis.call('LRANGE', messages, first, last)}

-- Reads the state and messages of the window: when memory has run out, the server refuses the transaction of a read.
-- KEYS
--   messages
--   state
-- ARGV
--   first  place of the first message, from the end if negative
--   last
-- FIELDS reads all
-- REPLY state, field and value in turns; messages
-- ERROR
local messages, state = unpack(KEYS)
local first, last = unpack(ARGV)
return {redis.call('HGETALL', state), redis.call('LRANGE', messages, first, last)}

-- Makes a session active now, as an append does: its time starts again, and it leaves the eviction queue.
-- KEYS
--   messages
--   state
--   active
--   evictions
-- ARGV
--   session
--   now_ms      the server's clock where empty
--   timeout_ms
-- REPLY 1 touched, 0 no such session
-- ERROR CORRUPT
local messages, state, active, evictions = unpack(KEYS)
local session, now_ms, timeout_ms = unpack(ARGV)
local counters = redis.call('HGET', state, 'counters')
if not counters then return 0 end
local numbers = string.match(counters, '^(%d+ %d+ %d+) %d+ %d+ ?%a*$')
if not numbers then return redis.error_reply('CORRUPT counters') end
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local expires = now + timeout_ms + math.max(1000, math.floor(timeout_ms / 16))
redis.call('ZADD', active, now, session)
redis.call('HSET', state, 'counters', string.format('%s %d %d', numbers, now, expires))
redis.call('ZREM', evictions, session)
redis.call('PEXPIREAT', state, expires)
redis.call('PEXPIREAT', messages, expires)
return 1

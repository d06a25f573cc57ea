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
-- ERROR
local messages, state, active, evictions = unpack(KEYS)
local session, now_ms, timeout_ms = unpack(ARGV)
if redis.call('HEXISTS', state, 'epoch') == 0 then return 0 end
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local expires = now + timeout_ms + math.floor(timeout_ms / 16)
redis.call('ZADD', active, now, session)
redis.call('HSET', state, 'active_ms', now, 'expires_ms', expires)
redis.call('HDEL', state, 'evicting')
redis.call('ZREM', evictions, session)
redis.call('PEXPIREAT', state, expires)
redis.call('PEXPIREAT', messages, expires)
return 1

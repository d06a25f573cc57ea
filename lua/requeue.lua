-- Takes a session off the dead list: to try it again now, or to leave it as it is until its next message.
-- KEYS
--   state
--   overdue
--   dead
-- ARGV
--   session
--   now_ms  the server's clock where empty
--   again   1: it is overdue now; 0: it only leaves the list
-- REPLY 1 done, 0 it is not on the list
-- ERROR
local state, overdue, dead = unpack(KEYS)
local session, now_ms, again = unpack(ARGV)
if redis.call('HGET', state, 'queued') ~= 'dead' then return redis.call('ZREM', dead, session) end
local now = tonumber(now_ms)
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if again == '1' then
  redis.call('ZADD', overdue, now, session)
  redis.call('HSET', state, 'queued', 'overdue')
else
  redis.call('HDEL', state, 'queued')
end
redis.call('HDEL', state, 'attempts')
redis.call('ZREM', dead, session)
return 1

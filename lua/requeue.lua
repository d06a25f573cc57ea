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
local seen = redis.call('HMGET', state, 'queued', 'counters')
-- The removal first: once it has written, a script may go on where memory is short.
local listed = redis.call('ZREM', dead, session)
if seen[1] ~= 'dead' then return listed end
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
if again == '1' then
  redis.call('ZADD', overdue, now, session)
  redis.call('HSET', state, 'queued', 'overdue')
else
  -- Up to this message its window is too long and yet in no queue, as somebody decided.
  redis.call('HSET', state, 'dropped_seq', string.match(seen[2] or '', '^%d+ (%d+)') or 0)
  redis.call('HDEL', state, 'queued')
end
redis.call('HDEL', state, 'attempts')
return 1

-- Removes a session from the dead list: to retry it now, or to leave it unsummarised until its next message.
-- KEYS
--   state
--   overdue
--   dead
-- ARGV
--   session
--   now_ms  - for the server's clock
--   again   1 makes it overdue now; 0 only removes it from the list
-- FIELDS reads queued counters
--   writes queued dropped_seq attempts deaths
-- REPLY 1 done, 0 not on the list
-- ERROR LAYOUT version
local state, overdue, dead = unpack(KEYS)
local session, now_ms, again = unpack(ARGV)
local queued, counters = unpack(redis.call('HMGET', state, 'queued', 'counters'))
counters = counters or ''
--- @include layout
-- Removal first: a script that has written may continue when memory is short.
local listed = redis.call('ZREM', dead, session) -- [off the list]
if queued ~= 'dead' then return listed end -- [dead]
if again == '1' then
  --- @include now
  redis.call('ZADD', overdue, now, session)
  redis.call('HSET', state, 'queued', 'overdue')
else
  --- @include parsed
  -- Records that an operator dropped it: up to this seq, a window that is too long may be in no queue.
  redis.call('HSET', state, 'dropped_seq', total or 0) -- [dropped]
  redis.call('HDEL', state, 'queued')
end
redis.call('HDEL', state, 'attempts', 'deaths') -- [attempts]
return 1

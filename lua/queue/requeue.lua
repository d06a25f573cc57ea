-- Takes a session off the dead list: to try it again now, or to leave it as it is until its next message.
-- KEYS
--   state
--   overdue
--   dead
-- ARGV
--   session
--   now_ms  - for the server's clock
--   again   1: it is overdue now; 0: it only leaves the list
-- FIELDS reads queued counters
--   writes queued dropped_seq attempts deaths
-- REPLY 1 done, 0 it is not on the list
-- ERROR LAYOUT version
local state, overdue, dead = unpack(KEYS)
local session, now_ms, again = unpack(ARGV)
local queued, counters = unpack(redis.call('HMGET', state, 'queued', 'counters'))
counters = counters or ''
--- @include layout
-- The removal first: once it has written, a script may go on when memory is short.
local listed = redis.call('ZREM', dead, session) -- [off the list]
if queued ~= 'dead' then return listed end -- [dead]
if again == '1' then
  --- @include now
  redis.call('ZADD', overdue, now, session)
  redis.call('HSET', state, 'queued', 'overdue')
else
  --- @include parsed
  -- Up to this message its window is too long and yet in no queue, as somebody decided.
  redis.call('HSET', state, 'dropped_seq', total or 0) -- [dropped]
  redis.call('HDEL', state, 'queued')
end
redis.call('HDEL', state, 'attempts', 'deaths') -- [attempts]
return 1

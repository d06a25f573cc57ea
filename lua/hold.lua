-- Takes a session of the eviction queue in hand for a while, so that one worker at a time writes its transcript.
-- KEYS
--   state
--   evictions
-- ARGV
--   session
--   now_ms   the server's clock where empty
--   hold_ms
-- REPLY 1 in hand, 0 not due, another's, or touched meanwhile
-- ERROR
local state, evictions = unpack(KEYS)
local session, now_ms, hold_ms = unpack(ARGV)
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local due = redis.call('ZSCORE', evictions, session)
if not due or tonumber(due) > now then return 0 end
-- The reason stands behind the counters until somebody touches the session.
if not string.find(redis.call('HGET', state, 'counters') or '', '%a$') then
  redis.call('ZREM', evictions, session)
  return 0
end
-- A removal first: once it has written, a script may go on where memory is short.
redis.call('ZREM', evictions, session)
redis.call('ZADD', evictions, now + hold_ms, session)
return 1

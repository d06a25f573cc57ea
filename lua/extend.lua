-- Gives a worker that is still at it more time.
-- KEYS
--   state
--   leased
-- ARGV
--   session
--   now_ms    the server's clock where empty
--   fence
--   lease_ms
-- REPLY 1 extended, 0 the lease is another's, or gone
-- ERROR
local state, leased = unpack(KEYS)
local session, now_ms, fence, lease_ms = unpack(ARGV)
if redis.call('HGET', state, 'fence') ~= fence then return 0 end
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
-- A removal first: once it has written, a script may go on where memory is short.
redis.call('ZREM', leased, session)
redis.call('ZADD', leased, now + lease_ms, session)
return 1

-- Gives a worker that is still at it more time.
-- KEYS
--   state
--   leased
-- ARGV
--   session
--   now_ms    - for the server's clock
--   fence
--   lease_ms
-- FIELDS reads fence
-- REPLY 1 extended, 0 the lease is another's, or gone
-- ERROR
local state, leased = unpack(KEYS)
local session, now_ms, fence, lease_ms = unpack(ARGV)
if redis.call('HGET', state, 'fence') ~= fence then return 0 end -- [fence]
--- @include now
-- A removal first: once it has written, a script may go on when memory is short.
redis.call('ZREM', leased, session)
redis.call('ZADD', leased, now + lease_ms, session) -- [lease]
return 1

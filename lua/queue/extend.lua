-- Extends the lease of a worker.
-- KEYS
--   state
--   leased
-- ARGV
--   session
--   now_ms    - for the server's clock
--   fence
--   lease_ms
-- FIELDS reads fence
-- REPLY 1 extended, 0 the lease belongs to another worker, or has ended
-- ERROR
local state, leased = unpack(KEYS)
local session, now_ms, fence, lease_ms = unpack(ARGV)
if redis.call('HGET', state, 'fence') ~= fence then return 0 end -- [fence]
--- @include now
-- Removal first: a script that has written may continue when memory is short.
redis.call('ZREM', leased, session)
redis.call('ZADD', leased, now + lease_ms, session) -- [lease]
return 1

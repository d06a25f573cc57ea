-- Removes a session whole, if it is still in the epoch that the caller saw: a repeated call spares a newer session.
-- KEYS
--   messages
--   state
--   originals
--   active
--   overdue
--   leased
--   dead
--   evictions
-- ARGV
--   session
--   epoch
-- REPLY 1 removed, 0 not there any more
-- ERROR
local messages, state, originals, active, overdue, leased, dead, evictions = unpack(KEYS)
local session, epoch = unpack(ARGV)
if (redis.call('HGET', state, 'epoch') or '') ~= epoch then return 0 end
for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, session) end
return redis.call('DEL', messages, state, originals) > 0 and 1 or 0

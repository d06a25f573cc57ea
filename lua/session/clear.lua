-- Removes a whole session, if its epoch is the one the caller saw: a repeated call spares a newer session.
-- KEYS
--   messages
--   state
--   originals
--   vectors
--   active
--   overdue
--   leased
--   dead
--   evictions
--   owners
-- ARGV
--   session
--   epoch    - if the caller saw none
-- FIELDS reads epoch
-- REPLY 1 removed, 0 already gone
-- ERROR
local messages, state, originals, vectors, active, overdue, leased, dead, evictions, owners = unpack(KEYS)
local session, epoch = unpack(ARGV)
local seen_epoch = redis.call('HGET', state, 'epoch')
if not seen_epoch or seen_epoch == '' then seen_epoch = '-' end
if seen_epoch ~= epoch then return 0 end -- [epoch]
--- @include unindex
return redis.call('DEL', messages, state, vectors, originals) > 0 and 1 or 0

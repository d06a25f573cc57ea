-- Removes a session whole, if it is as it was when its transcript was taken.
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
--   appends  the field ids_a as in the transcript, - for none; * if there is no transcript
-- FIELDS reads epoch counters ids_a
-- REPLY 1 evicted, 0 touched since, or gone
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals, active, overdue, leased, dead, evictions = unpack(KEYS)
local session, epoch, appends = unpack(ARGV)
local seen_epoch, counters, ids = unpack(redis.call('HMGET', state, 'epoch', 'counters', 'ids_a'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters = counters or ''
--- @include counters
if evicting == '' then return 0 end -- [touched since]
-- Whatever writes leaves its random bytes there. The session may have been chosen again meanwhile; and after a failover
-- that lost appends, others may have taken their seqs.
if appends ~= '*' and (ids or '-') ~= appends then return 0 end -- [as it was read]
--- @include unindex
redis.call('DEL', messages, state, originals) -- [removal]
return 1

-- Removes a whole session, if it has not changed since its transcript was read.
-- KEYS
--   messages
--   state
--   originals
--   turned
--   live
--   waiters
--   active
--   overdue
--   leased
--   dead
--   evictions
--   owners
--   turns
-- ARGV
--   session
--   appends  the field ids_a as in the transcript, - if missing; * if there is no transcript
-- FIELDS reads counters ids_a
-- REPLY 1 evicted, 0 touched since, or gone
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals, turned, live, waiters, active, overdue, leased, dead, evictions, owners, turns = unpack(KEYS)
local session, appends = unpack(ARGV)
local counters, ids = unpack(redis.call('HMGET', state, 'counters', 'ids_a'))
counters = counters or 'v1 1 0 0 0 0'
--- @include counters
if evicting == '' then return 0 end -- [touched since]
-- Every append leaves its random bytes in ids_a. The session may have been queued again meanwhile; and after a failover
-- that lost appends, other appends may have taken their seqs.
if appends ~= '*' and (ids or '-') ~= appends then return 0 end -- [as it was read]
--- @include unindex
redis.call('DEL', messages, state, turned, live, waiters, originals) -- [removal]
return 1

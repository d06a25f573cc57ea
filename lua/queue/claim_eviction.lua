-- Leases a session of the eviction queue to a worker, so that one worker at a time hands over its transcript.
-- KEYS
--   state
--   evictions
-- ARGV
--   session
--   now_ms    - for the server's clock
--   lease_ms
-- FIELDS reads counters
-- REPLY 1 claimed, 0 not due, claimed by another worker, or touched meanwhile
-- ERROR CORRUPT · LAYOUT version
local state, evictions = unpack(KEYS)
local session, now_ms, lease_ms = unpack(ARGV)
--- @include now
local due = redis.call('ZSCORE', evictions, session)
if not due or tonumber(due) > now or tonumber(due) < 0 then return 0 end -- [due]
local counters = redis.call('HGET', state, 'counters') or 'v1 1 0 0 0 0'
--- @include counters
-- Removal first: a script that has written may continue when memory is short.
redis.call('ZREM', evictions, session)
-- The counters hold the reason until an append or touch removes it.
if evicting == '' then return 0 end -- [touched since]
redis.call('ZADD', evictions, now + lease_ms, session) -- [in hand]
return 1

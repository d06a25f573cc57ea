-- Leases a session of the eviction queue to a worker, so that one worker at a time hands over its transcript.
-- KEYS
--   state
--   evictions
-- ARGV
--   session
--   now_ms    - for the server's clock
--   lease_ms
--   nonce     identifies a repeated claim
-- FIELDS reads counters evictor
--   writes evictor
-- REPLY 1 claimed, 0 not due, claimed by another worker, or touched meanwhile
-- ERROR CORRUPT · LAYOUT version
local state, evictions = unpack(KEYS)
local session, now_ms, lease_ms, nonce = unpack(ARGV)
--- @include now
local due = tonumber(redis.call('ZSCORE', evictions, session) or -1)
local counters, evictor = unpack(redis.call('HMGET', state, 'counters', 'evictor'))
if due > now and evictor == string.format('%d-%s', due, nonce) then return 1 end -- [made before]
if due > now or due < 0 then return 0 end -- [due]
counters = counters or 'v1 1 0 0 0 0'
--- @include counters
-- Removal first: a script that has written may continue when memory is short.
redis.call('ZREM', evictions, session)
-- The counters hold the reason until an append or touch removes it.
if evicting == '' then return 0 end -- [touched since]
redis.call('ZADD', evictions, now + lease_ms, session) -- [in hand]
redis.call('HSET', state, 'evictor', string.format('%d-%s', now + lease_ms, nonce)) -- [in whose hand]
return 1

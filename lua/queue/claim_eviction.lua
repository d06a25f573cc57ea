-- Takes a session of the eviction queue in hand for a while, so that one worker at a time writes its transcript.
-- KEYS
--   state
--   evictions
-- ARGV
--   session
--   now_ms    - for the server's clock
--   lease_ms
-- FIELDS reads counters
-- REPLY 1 in hand, 0 not due, another's, or touched meanwhile
-- ERROR CORRUPT · LAYOUT version
local state, evictions = unpack(KEYS)
local session, now_ms, lease_ms = unpack(ARGV)
--- @include now
local due = redis.call('ZSCORE', evictions, session)
if not due or tonumber(due) > now then return 0 end -- [due]
local counters = redis.call('HGET', state, 'counters') or 'v1 1 0 0 0 0'
--- @include counters
-- A removal first: once it has written, a script may go on when memory is short.
redis.call('ZREM', evictions, session)
-- The reason stands behind the counters until somebody touches the session.
if evicting == '' then return 0 end -- [touched since]
redis.call('ZADD', evictions, now + lease_ms, session) -- [in hand]
return 1

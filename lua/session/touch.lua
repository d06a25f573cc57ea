-- Makes a session active now, as an append does: renews its time to live and removes it from the eviction queue.
-- The log of turns never expires later than the session; it is not kept longer.
-- KEYS
--   messages
--   state
--   originals
--   turned
--   live
--   active
--   evictions
-- ARGV
--   session
--   now_ms      - for the server's clock
--   kept_ms
--   owner       that the session must have, - for any
-- FIELDS reads counters owner
--   writes counters
-- REPLY 1 touched, 0 no such session
-- ERROR OWNER other · PAST now_ms · CORRUPT · LAYOUT version
local messages, state, originals, turned, live, active, evictions = unpack(KEYS)
local session, now_ms, kept_ms, owner = unpack(ARGV)
--- @include same_owner
local counters = redis.call('HGET', state, 'counters')
if not counters then return 0 end
--- @include counters
--- @include policy
--- @include now
--- @include timely
expires_ms = now + kept_ms
redis.call('ZADD', active, sign * now, session)
counters = string.format('v1 %s %s %s %d %d', window_first_seq, total, window_tokens, now, expires_ms) .. uncounted .. hidden .. policy -- [new]
redis.call('HSET', state, 'counters', counters)
redis.call('ZREM', evictions, session) -- [off the eviction queue]
--- @include watched
redis.call('PEXPIREAT', state, expires_ms)
for _, key in ipairs({messages, turned, originals}) do redis.call('PEXPIREAT', key, expires_ms) end -- [all expire]
redis.call('PEXPIREAT', live, expires_ms, 'LT') -- [log not later]
return 1

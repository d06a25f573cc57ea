-- Sets the policy of a session, and makes the session active now, as a touch does. A session that is kept whole from now on
-- leaves the queues of summaries, and a worker that has it is fenced. Any other is overdue, for a worker to look at it.
-- KEYS
--   messages
--   state
--   originals
--   turned
--   live
--   active
--   overdue
--   leased
--   dead
--   evictions
-- ARGV
--   session
--   now_ms      - for the server's clock
--   kept_ms     of a session without an own timeout
--   new_policy  as in the counters; empty for none
--   owner       that the session must have, - for any
--   sending     12 bytes, as in the token of an append
--   zone        new time zone; empty for none
--   fence       of the worker that has the session, - for any other caller
-- FIELDS reads counters owner queued resent fence
--   writes counters queued zone resent fence attempts failure deaths
-- REPLY 1 set, 0 no such session, or another worker has it
-- ERROR OWNER other · OVERTAKEN sending · PAST now_ms · CORRUPT · LAYOUT version
local messages, state, originals, turned, live, active, overdue, leased, dead, evictions = unpack(KEYS)
local session, now_ms, kept_ms, new_policy, owner, sending, zone, fence = unpack(ARGV)
--- @include same_owner
local overtaking, counters, queued, resent = nil, unpack(redis.call('HMGET', state, 'counters', 'queued', 'resent'))
if not counters or fence ~= '-' and redis.call('HGET', state, 'fence') ~= fence then return 0 end -- [claimed]
--- @include counters
--- @include overtaken
local bodies = string.find(policy, 'b', 1, true)
local policy = bodies and '~b' .. string.sub(new_policy, 2) or new_policy -- [bodies]
--- @include policy
--- @include now
--- @include timely
expires_ms = now + kept_ms
if is_whole then
  for _, queue in ipairs({overdue, leased, dead}) do redis.call('ZREM', queue, session) end -- [kept whole]
  redis.call('HDEL', state, 'queued', 'fence', 'attempts', 'failure', 'deaths') -- [fenced]
elseif not queued then
  redis.call('ZADD', overdue, now, session) -- [looked at]
  redis.call('HSET', state, 'queued', 'overdue')
end
redis.call('ZADD', active, sign * now, session)
counters = string.format('v1 %s %s %s %d %d', window_first_seq, total, window_tokens, now, expires_ms) .. uncounted .. hidden .. policy -- [new]
redis.call('HSET', state, 'counters', counters, 'zone', zone, overtaking and 'resent' or 'counters', overtaking or counters) -- [noted]
if zone == '' then redis.call('HDEL', state, 'zone') end -- [UTC]
redis.call('ZREM', evictions, session) -- [off the eviction queue]
--- @include watched
for _, key in ipairs({state, messages, turned, originals}) do redis.call('PEXPIREAT', key, expires_ms) end -- [all expire]
redis.call('PEXPIREAT', live, expires_ms, 'LT') -- [log not later]
return 1

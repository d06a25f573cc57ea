-- Leases a session that is overdue, or whose lease has expired, to a worker, and fences every earlier worker.
-- KEYS
--   messages
--   state
--   overdue
--   leased
--   dead
--   fences
-- ARGV
--   session
--   now_ms           - for the server's clock
--   nonce            makes the fence unique, and identifies a repeated claim
--   lease_ms
--   threshold        a window of more messages is overdue
--   token_limit      so is one of more tokens; - for no such limit
--   recent_limit     messages that are never summarised, however many tokens they have
--   summaries_limit  more summaries than this must be folded
--   max_attempts
-- FIELDS reads counters queued attempts summaries_count failure deaths fence
--   writes queued fence attempts failure deaths
-- REPLY outcome (job, none, notdue, leased, gone, noop, dead), fence, attempts, the time in ms; for a job also the time
--   since which it was due, or of the first sending if the claim was repeated
-- ERROR CORRUPT · LAYOUT version
local messages, state, overdue, leased, dead, fences = unpack(KEYS)
local session, now_ms, nonce, lease_ms, threshold, token_limit, recent_limit,
  summaries_limit, max_attempts = unpack(ARGV)
--- @include now
local counters, queued, attempts, summaries_count, failure, deaths, seen_fence =
  unpack(redis.call('HMGET', state, 'counters', 'queued', 'attempts', 'summaries_count', 'failure', 'deaths', 'fence'))
attempts = tonumber(attempts or 0)
local function leave(outcome)
  redis.call('ZREM', overdue, session)
  redis.call('ZREM', leased, session)
  if counters then redis.call('HDEL', state, 'queued', 'fence', 'attempts', 'failure', 'deaths') end -- [nothing waits]
  return {outcome, '', 0, now}
end
if not counters then
  redis.call('ZREM', dead, session) -- [gone]
  return leave('gone')
end
--- @include counters
local due = queued == 'overdue' and redis.call('ZSCORE', overdue, session)
  or queued == 'leased' and redis.call('ZSCORE', leased, session)
if not due then return {'none', '', 0, now} end -- [in a queue]
local is_own = queued == 'leased' and tonumber(due) > now and string.match(seen_fence or '', '%-(.*)') == nonce -- [made before]
if tonumber(due) > now and not is_own then return {queued == 'leased' and 'leased' or 'notdue', '', 0, now} end -- [due]
local window_count = redis.call('LLEN', messages) - (tonumber(uncounted) or 0) -- [counted]
--- @include overdue
local kept_ms
--- @include policy
local folds = tonumber(summaries_count or 0) > tonumber(summaries_limit) -- [folds]
if is_whole or not (is_overdue or folds) then return leave('noop') end -- [needed]
if is_own then return {'job', seen_fence, attempts, now, due - lease_ms} end
if attempts >= tonumber(max_attempts) then -- [attempts left]
  redis.call('ZREM', overdue, session)
  redis.call('ZREM', leased, session)
  redis.call('ZADD', dead, now, session) -- [listed as dead]
  redis.call('HSET', state, 'queued', 'dead', 'deaths', (deaths or 0) + 1) -- [deaths]
  redis.call('HDEL', state, 'fence') -- [end of the fence]
  local reason = 'no worker came back with it'
  --- @include failed
  return {'dead', '', attempts, now}
end
-- Removal first: a script that has written may continue when memory is short.
redis.call('ZREM', overdue, session) -- [off the queue]
local fence = redis.call('INCR', fences) .. '-' .. nonce -- [fence]
redis.call('ZADD', leased, now + lease_ms, session) -- [lease]
redis.call('HSET', state, 'queued', 'leased', 'fence', fence, 'attempts', attempts + 1) -- [noted]
return {'job', fence, attempts + 1, now, due}

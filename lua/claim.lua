-- Takes a session off the overdue queue, or over from a worker whose lease ran out, and fences every earlier worker.
-- KEYS
--   messages
--   state
--   overdue
--   leased
--   dead
--   fences
-- ARGV
--   session
--   now_ms           the server's clock where empty
--   nonce            makes the fence unique
--   lease_ms
--   threshold        a window of more messages is overdue
--   token_limit      so is one of more tokens; empty: no such limit
--   recent_limit     messages that stay as they are, however many tokens they have
--   summaries_limit  so many summaries need no folding
--   max_attempts
-- REPLY outcome (job, none, notdue, leased, gone, noop, dead), fence, attempts, the time in ms
-- ERROR
local messages, state, overdue, leased, dead, fences = unpack(KEYS)
local session, now_ms, nonce, lease_ms, threshold, token_limit, recent_limit,
  summaries_limit, max_attempts = unpack(ARGV)
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local seen = redis.call('HMGET', state, 'counters', 'queued', 'attempts', 'summaries_count')
local counters, queued, attempts = seen[1], seen[2], tonumber(seen[3] or 0)
local function leave(outcome)
  redis.call('ZREM', overdue, session)
  redis.call('ZREM', leased, session)
  if counters then redis.call('HDEL', state, 'queued', 'fence', 'attempts') end
  return {outcome, '', 0, now}
end
if not counters then
  redis.call('ZREM', dead, session)
  return leave('gone')
end
local due = queued == 'overdue' and redis.call('ZSCORE', overdue, session)
  or queued == 'leased' and redis.call('ZSCORE', leased, session)
if not due then return {'none', '', 0, now} end
if tonumber(due) > now then return {queued == 'leased' and 'leased' or 'notdue', '', 0, now} end
local length = redis.call('LLEN', messages)
local tokens = tonumber(string.match(counters, '^%d+ %d+ (%d+)') or 0)
local too_long = length > tonumber(threshold)
  or token_limit ~= '' and length > tonumber(recent_limit) and tokens > tonumber(token_limit)
if not too_long and tonumber(seen[4] or 0) <= tonumber(summaries_limit) then return leave('noop') end
if attempts >= tonumber(max_attempts) then
  redis.call('ZREM', overdue, session)
  redis.call('ZREM', leased, session)
  redis.call('ZADD', dead, now, session)
  redis.call('HSET', state, 'queued', 'dead')
  redis.call('HDEL', state, 'fence')
  return {'dead', '', attempts, now}
end
-- The removal first: once it has written, a script may go on where memory is short.
redis.call('ZREM', overdue, session)
local fence = redis.call('INCR', fences) .. '-' .. nonce
redis.call('ZADD', leased, now + lease_ms, session)
redis.call('HSET', state, 'queued', 'leased', 'fence', fence, 'attempts', attempts + 1)
return {'job', fence, attempts + 1, now}

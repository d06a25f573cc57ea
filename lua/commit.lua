-- Swaps a summary in for exactly the messages it covers, or for the summaries it folds, and ends the lease.
-- KEYS
--   messages
--   state
--   originals
--   overdue
--   leased
-- ARGV
--   session
--   now_ms           the server's clock where empty
--   fence
--   epoch
--   first_seq        of the window, as it was claimed
--   count            messages covered, from the head of the window
--   tokens           of these messages
--   threshold        a window of more messages is overdue again
--   token_limit      so is one of more tokens; empty: no such limit
--   recent_limit     messages that stay as they are, however many tokens they have
--   summaries_limit  more summaries than this are to be folded
--   originals_ms     the time to live of the originals; 0 keeps none
--   summary_field    empty: the messages go without one
--   summary          then the summary fields that this one replaces
-- REPLY outcome: ok, already, gone, fenced, stale
-- ERROR CORRUPT
local messages, state, originals, overdue, leased = unpack(KEYS)
local session, now_ms, fence, epoch, first_seq, count, tokens, threshold, token_limit, recent_limit,
  summaries_limit, originals_ms, summary_field, summary = unpack(ARGV, 1, 14)
count, originals_ms = tonumber(count), tonumber(originals_ms)
local seen = redis.call('HMGET', state, 'epoch', 'committed', 'fence', 'counters', 'summaries_count', 'with_originals')
if seen[1] ~= epoch then return 'gone' end
if seen[2] == fence then return 'already' end
if seen[3] ~= fence then return 'fenced' end
local length = redis.call('LLEN', messages), redis.call('LLEN', originals)
local seen_first_seq, total, old_tokens, times = string.match(seen[4] or '', '^(%d+) (%d+) (%d+) (%d+ %d+ ?%a*)$')
if not times then return redis.error_reply('CORRUPT counters') end
if seen_first_seq ~= first_seq or length < count then return 'stale' end
for at = 15, #ARGV do
  if redis.call('HEXISTS', state, ARGV[at]) == 0 then return 'stale' end
end
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)

-- A removal first: once it has written, a script may go on where memory is short, and this one makes room.
redis.call('ZREM', leased, session)
local summaries_count = tonumber(seen[5] or 0) - (#ARGV - 14)
if count > 0 then
  -- Originals of an earlier epoch do not belong here, and without new ones the old would leave a gap.
  if not seen[6] or originals_ms == 0 then redis.call('DEL', originals) end
  redis.call('HDEL', state, 'with_originals')
end
if count > 0 and originals_ms > 0 then
  for from = 0, count - 1, 500 do
    redis.call('RPUSH', originals, unpack(redis.call('LRANGE', messages, from, math.min(from + 500, count) - 1)))
  end
  redis.call('PEXPIRE', originals, originals_ms)
  redis.call('HSET', state, 'with_originals', 1)
end
if #ARGV > 14 then redis.call('HDEL', state, unpack(ARGV, 15)) end
if summary_field ~= '' then
  redis.call('HSET', state, summary_field, summary)
  summaries_count = summaries_count + 1
end
local left, left_tokens = length - count, math.max(0, old_tokens - tokens)
local again = left > tonumber(threshold) or summaries_count > tonumber(summaries_limit)
  or token_limit ~= '' and left > tonumber(recent_limit) and left_tokens > tonumber(token_limit)
local counters = string.format('%d %s %d %s', first_seq + count, total, left_tokens, times)
redis.call('HSET', state, 'counters', counters, 'committed', fence,
  'summaries_count', summaries_count, 'queued', 'overdue')
redis.call('HDEL', state, 'fence', 'attempts', 'dropped_seq', again and 'fence' or 'queued')
if again then redis.call('ZADD', overdue, now, session) end
-- Last, as in append.lua: done twice, it would lose messages.
if count > 0 then redis.call('LTRIM', messages, count, -1) end
return 'ok'

-- Replaces exactly the covered messages, and the folded summaries, by a summary, and ends the lease.
-- KEYS
--   messages
--   state
--   originals
--   overdue
--   leased
-- ARGV
--   session
--   now_ms           - for the server's clock
--   fence
--   epoch
--   first_seq        of the window, as claimed
--   edited           as claimed; - for none
--   next_seq         first_seq after the commit
--   count            elements that leave the head of the window
--   uncounted_count  how many of them are pinned or gaps
--   tokens           of the others, the covered messages
--   threshold        a window of more messages is overdue again
--   token_limit      so is one of more tokens; - for no such limit
--   recent_limit     messages that are never summarised, however many tokens they have
--   summaries_limit  more summaries than this must be folded
--   summary_field    - drops the messages without a summary
--   summary
--   sketch           with these messages added; - leaves it unchanged
--   merged           number of the first of four blocks of originals that become one; - for none
--   pinned_field     the field for pinned messages that leave; - for none
--   pinned           these messages
--   more_large       change of the bytes of large messages in the window
--   kept_count       length of the next part: fields and values of the originals, 0 keeps none; then the folded fields
-- FIELDS reads epoch committed fence counters summaries_count with_originals edited large_bytes summary:
--   writes counters committed summaries_count queued fence attempts failure deaths dropped_seq with_originals sketch large_bytes pinned: summary:
-- REPLY outcome: ok, already, gone, fenced, stale
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals, overdue, leased = unpack(KEYS)
local session, now_ms, fence, epoch, first_seq, edited, next_seq, count, uncounted_count, tokens, threshold, token_limit,
  recent_limit, summaries_limit, summary_field, summary, sketch, merged, pinned_field, pinned, more_large, kept_count = unpack(ARGV, 1, 22)
count, kept_count = tonumber(count), tonumber(kept_count)
local next_kept, folded = kept_count == 0 and next_seq or first_seq, {unpack(ARGV, 23 + kept_count)}
local seen_epoch, committed, seen_fence, counters, summaries_count, with_originals, seen_edited, large = unpack(redis.call(
  'HMGET', state, 'epoch', 'committed', 'fence', 'counters', 'summaries_count', 'with_originals', 'edited', 'large_bytes'))
if seen_epoch ~= epoch then return 'gone' end -- [epoch]
if committed == fence then return 'already' end -- [made before]
if seen_fence ~= fence then return 'fenced' end -- [fence]
-- HLEN makes the server refuse originals of a foreign type before the first write.
local window_count = redis.call('LLEN', messages), redis.call('HLEN', originals)
counters = counters or ''
--- @include counters
if window_first_seq ~= first_seq then return 'stale' end -- [the window]
if (seen_edited or '-') ~= edited then return 'stale' end -- [edited since]
if window_count < count then return 'stale' end
for _, field in ipairs(folded) do if redis.call('HEXISTS', state, field) == 0 then return 'stale' end end
--- @include now
-- Removal first: a script that has written may continue when memory is short. This one frees memory.
redis.call('ZREM', leased, session) -- [end of the lease]
if pinned_field ~= '-' then redis.call('HSET', state, pinned_field, pinned) end -- [pinned stay]
-- Drops originals of an earlier epoch, and originals that would be followed by a gap.
if count > 0 and (not with_originals or kept_count == 0) then -- [old originals]
  if string.find(policy, 'b', 1, true) then
    for _, name in ipairs(redis.call('HKEYS', originals)) do
      local seq = tonumber(string.match(name, '^b(%d+)$'))
      if not seq or seq < tonumber(next_kept) then redis.call('HDEL', originals, name) end -- [bodies stay]
    end
  else
    redis.call('DEL', originals) -- [originals go]
  end
  redis.call('HDEL', state, 'with_originals')
end
for at = 23, 22 + kept_count, 500 do
  -- A growing block is set as a whole. If a crash cuts the script here, readers skip the messages that are in it twice.
  redis.call('HSET', originals, unpack(ARGV, at, math.min(at + 499, 22 + kept_count))) -- [originals]
end
if merged ~= '-' then
  for block = merged + 1, merged + 3 do redis.call('HDEL', originals, block, 's' .. block) end -- [merged]
end
if kept_count > 0 then
  redis.call('PEXPIREAT', originals, expires_ms) -- [expiry]
  redis.call('HSET', state, 'with_originals', 1)
end
summaries_count = (summaries_count or 0) - #folded
if #folded > 0 then redis.call('HDEL', state, unpack(folded)) end -- [folded]
if summary_field ~= '-' then
  redis.call('HSET', state, summary_field, summary) -- [summary]
  summaries_count = summaries_count + 1
end
if sketch ~= '-' then redis.call('HSET', state, 'sketch', sketch) end -- [sketch]
local left_count = (tonumber(uncounted) or 0) - uncounted_count
uncounted = left_count > 0 and string.format('+%d', left_count) or '' -- [uncounted]
local left_hidden = (tonumber(hidden) or 0) + next_seq - first_seq - count
hidden = left_hidden < 0 and string.format('%d', left_hidden) or '' -- [hidden]
window_count = window_count - count - math.max(0, left_count) -- [counted]
window_tokens = math.max(0, window_tokens - tokens) -- [tokens]
--- @include overdue
local again = is_overdue or summaries_count > tonumber(summaries_limit) -- [folds]
counters = string.format('v1 %s %s %d %s %s%s%s%s%s',
  next_seq, total, window_tokens, active_ms, expires_ms, uncounted, hidden, policy, evicting) -- [chosen]
redis.call('HSET', state, 'counters', counters, 'committed', fence, -- [committed]
  'summaries_count', summaries_count, 'queued', 'overdue')
if large then redis.call('HSET', state, 'large_bytes', math.max(0, (tonumber(large) or 0) + more_large)) end -- [large]
redis.call('HDEL', state, 'fence', 'attempts', again and 'fence' or 'queued') -- [end of the claim]
redis.call('HDEL', state, 'failure', 'deaths', 'dropped_seq') -- [well again]
if again then redis.call('ZADD', overdue, now, session) end -- [overdue again]
-- Last, as in append.lua: a second run would lose messages.
if count > 0 then redis.call('LTRIM', messages, count, -1) end -- [messages go]
return 'ok'

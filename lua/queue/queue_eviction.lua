-- Queues sessions for eviction that were not touched since they were polled; an append or touch removes them again. An idle
-- session is due once its time is up, but is queued before that, as it would otherwise expire without a handover.
-- KEYS
--   active
--   overdue
--   leased
--   dead
--   evictions
--   owners
--   turns      then messages, state, originals and turned of each session
-- ARGV
--   now_ms     - for the server's clock
--   reason     idle or limit
--   kept       1 extends their lives by a day, for on_evict
--   soon_ms    sessions that expire within that time are queued as idle; then each session and its activity as polled, or -
-- FIELDS reads counters
--   writes counters
-- REPLY number of queued sessions, number of expired ones
-- ERROR
local active, overdue, leased, dead, evictions, owners, turns = unpack(KEYS, 1, 7)
local now_ms, reason, kept, soon_ms = unpack(ARGV, 1, 4)
--- @include now
--- @include handover
local lives_until_ms = kept == '1' and now + handover_ms or 0
local chosen, expired = 0, 0
for at = 5, #ARGV, 2 do
  local session, seen_ms = unpack(ARGV, at, at + 1)
  local messages, state, originals, turned = unpack(KEYS, 2 * at - 2, 2 * at + 1)
  local kind = redis.call('TYPE', state).ok
  if kind == 'hash' then
    local counters = redis.call('HGET', state, 'counters') or ''
    --- @include parsed
    local due_ms = reason == 'idle' and math.max(now, (tonumber(expires_ms) or 0) + 1) or now -- [its own time]
    -- A session whose counters hold a reason is on the queue already.
    local is_exempt = reason == 'limit' and string.find(policy or '', 'x', 1, true) -- [exempt]
    if (active_ms == seen_ms or seen_ms == '-') and evicting == '' and due_ms <= now + soon_ms and not is_exempt then -- [not touched since]
      -- Removal first: a script that has written may continue when memory is short. An eviction frees memory.
      redis.call('ZREM', evictions, session)
      redis.call('ZADD', evictions, due_ms, session)
      if lives_until_ms > tonumber(expires_ms) then -- [handed over first]
        expires_ms = lives_until_ms
        counters = string.format('v1 %s %s %s %s %d', window_first_seq, total, window_tokens, active_ms, expires_ms) .. uncounted .. hidden .. policy
        for _, key in ipairs({state, messages, turned, originals}) do redis.call('PEXPIREAT', key, expires_ms) end -- [all expire]
      end
      counters = counters .. ' ' .. reason
      redis.call('HSET', state, 'counters', counters) -- [reason]
      chosen = chosen + 1
    end
  elseif kind == 'none' then -- [expired]
    -- Sessions evicted or cleared since the poll are no longer in active, and do not count.
    if redis.call('ZSCORE', active, session) then expired = expired + 1 end -- [by itself]
    --- @include unindex
  else
    -- A foreign type: the worker that claims the eviction puts the session into quarantine.
    redis.call('ZADD', evictions, now, session)
  end
end
return {chosen, expired}

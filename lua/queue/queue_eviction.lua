-- Puts sessions on the eviction queue that were not touched since somebody looked; a message takes one off again.
-- KEYS
--   active
--   overdue
--   leased
--   dead
--   evictions  then messages, state, originals and vectors of each session
-- ARGV
--   now_ms     - for the server's clock
--   reason     idle or limit, for whoever looks
--   kept       1: they live for a day more, as somebody is to have their transcripts first; then each and its activity
-- FIELDS reads counters
--   writes counters
-- REPLY how many were put on the queue, how many had expired
-- ERROR
local active, overdue, leased, dead, evictions = unpack(KEYS, 1, 5)
local now_ms, reason, kept = unpack(ARGV, 1, 3)
--- @include now
--- @include handover
local lives_until_ms = kept == '1' and now + handover_ms or 0
local chosen, expired = 0, 0
for at = 4, #ARGV, 2 do
  local session, seen_ms = unpack(ARGV, at, at + 1)
  local messages, state, originals, vectors = unpack(KEYS, 2 * at - 2, 2 * at + 1)
  local kind = redis.call('TYPE', state).ok
  if kind == 'hash' then
    local counters = redis.call('HGET', state, 'counters') or ''
    --- @include parsed
    -- If a reason stands behind them already, it is on the queue.
    if active_ms == seen_ms and evicting == '' then -- [not touched since]
      -- A removal first: once it has written, a script may go on when memory is short, and an eviction makes room.
      redis.call('ZREM', evictions, session)
      redis.call('ZADD', evictions, now, session)
      if lives_until_ms > tonumber(expires_ms) then -- [handed over first]
        expires_ms = lives_until_ms
        counters = string.format('v1 %s %s %s %s %d', window_first_seq, total, window_tokens, active_ms, expires_ms) .. uncounted
        for _, key in ipairs({state, messages, vectors, originals}) do redis.call('PEXPIREAT', key, expires_ms) end -- [all expire]
      end
      counters = counters .. ' ' .. reason
      redis.call('HSET', state, 'counters', counters) -- [reason]
      chosen = chosen + 1
    end
  elseif kind == 'none' then -- [expired]
    -- Not who was evicted or cleared since somebody looked.
    if redis.call('ZSCORE', active, session) then expired = expired + 1 end -- [by itself]
    --- @include unindex
  else
    -- Whoever takes it in hand finds that this is no state, and puts it into quarantine.
    redis.call('ZADD', evictions, now, session)
  end
end
return {chosen, expired}

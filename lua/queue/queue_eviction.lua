-- Puts sessions on the eviction queue that were not touched since somebody looked; a message takes one off again.
-- KEYS
--   active
--   overdue
--   leased
--   dead
--   evictions  then the state of each session
-- ARGV
--   now_ms     - for the server's clock
--   reason     idle or limit, for whoever looks; then each session and its activity as seen
-- FIELDS reads counters
--   writes counters
-- REPLY how many were put on the queue
-- ERROR
local active, overdue, leased, dead, evictions = unpack(KEYS, 1, 5)
local now_ms, reason = unpack(ARGV, 1, 2)
local states, seen = {unpack(KEYS, 6)}, {unpack(ARGV, 3)}
--- @include now
local chosen = 0
for number, state in ipairs(states) do
  local session, seen_ms = seen[2 * number - 1], seen[2 * number]
  local kind = redis.call('TYPE', state).ok
  if kind == 'hash' then
    local counters = redis.call('HGET', state, 'counters') or ''
    --- @include parsed
    -- If a reason stands behind them already, it is on the queue.
    if active_ms == seen_ms and evicting == '' then -- [not touched since]
      -- A removal first: once it has written, a script may go on when memory is short, and an eviction makes room.
      redis.call('ZREM', evictions, session)
      redis.call('ZADD', evictions, now, session)
      counters = counters .. ' ' .. reason
      redis.call('HSET', state, 'counters', counters) -- [reason]
      chosen = chosen + 1
    end
  elseif kind == 'none' then -- [expired]
    --- @include unindex
  else
    -- Whoever takes it in hand finds that this is no state, and puts it into quarantine.
    redis.call('ZADD', evictions, now, session)
  end
end
return chosen

-- Puts sessions on the eviction queue that were not touched since somebody looked; a message takes one off again.
-- KEYS
--   active
--   overdue
--   leased
--   dead
--   evictions  then the state of each session
-- ARGV
--   now_ms     the server's clock where empty
--   reason     idle or limit, for whoever looks; then each session and its activity as seen
-- REPLY how many were put on the queue
-- ERROR
local active, overdue, leased, dead, evictions = unpack(KEYS, 1, 5)
local now_ms, reason = unpack(ARGV, 1, 2)
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local chosen = 0
for at = 6, #KEYS do
  local session, seen_ms = ARGV[2 * at - 9], ARGV[2 * at - 8]
  local kind = redis.call('TYPE', KEYS[at]).ok
  if kind == 'hash' then
    local counters = redis.call('HGET', KEYS[at], 'counters') or ''
    -- Where a reason stands behind them already, it is on the queue.
    if string.match(counters, '^%d+ %d+ %d+ (%d+) %d+$') == seen_ms then
      -- A removal first: once it has written, a script may go on where memory is short, and an eviction makes room.
      redis.call('ZREM', evictions, session)
      redis.call('ZADD', evictions, now, session)
      local chosen_for = counters .. ' ' .. reason
      redis.call('HSET', KEYS[at], 'counters', chosen_for)
      chosen = chosen + 1
    end
  elseif kind == 'none' then
    for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, session) end
  else
    -- Whoever takes it in hand finds that this is no state, and sets the session aside.
    redis.call('ZADD', evictions, now, session)
  end
end
return chosen

-- Mends what expiry, or a store that drops keys by itself, has torn between some sessions and the indexes of the shard.
-- KEYS
--   active
--   overdue
--   leased
--   dead
--   evictions  then the state of each session
-- ARGV
--   now_ms     the server's clock where empty; then each session
-- REPLY sessions whose entries were removed, sessions put right
-- ERROR
local active, overdue, leased, dead, evictions = unpack(KEYS, 1, 5)
local now_ms = ARGV[1]
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local queues = {overdue = overdue, leased = leased, dead = dead}
local function mend(session, key, queued, counters, active_ms, reason)
  local mended = false
  for name, queue in pairs(queues) do
    if name ~= queued and redis.call('ZREM', queue, session) == 1 then mended = true end
  end
  local named = queues[queued]
  if named and not redis.call('ZSCORE', named, session) then
    redis.call('ZADD', overdue, now, session)
    redis.call('HSET', key, 'queued', 'overdue')
    redis.call('HDEL', key, 'fence', 'attempts')
    mended = true
  end
  if not redis.call('ZSCORE', active, session) then
    redis.call('ZADD', active, active_ms, session)
    mended = true
  end
  if reason ~= '' and not redis.call('ZSCORE', evictions, session) then
    redis.call('HSET', key, 'counters', counters)
    mended = true
  end
  return mended and 1 or 0
end
local removed, mended = 0, 0
for at = 6, #KEYS do
  local session = ARGV[at - 4]
  local kind = redis.call('TYPE', KEYS[at]).ok
  -- A key of another type, or counters that are none, must not keep the others from being looked after: who reads that
  -- session sets it aside.
  if kind == 'hash' or kind == 'none' then
    local state = redis.call('HMGET', KEYS[at], 'counters', 'queued')
    local counters, active_ms, reason = string.match(state[1] or '', '^(%d+ %d+ %d+ (%d+) %d+) ?(%a*)$')
    if counters then
      mended = mended + mend(session, KEYS[at], state[2], counters, active_ms, reason)
    elseif not state[1] then
      for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, session) end
      removed = removed + 1
    end
  end
end
return {removed, mended}

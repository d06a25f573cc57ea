-- Mends what expiry, or a store that drops keys by itself, has torn between some sessions and the indexes of the shard.
-- KEYS
--   active
--   overdue
--   leased
--   dead
--   evictions  then the state of each session
-- ARGV
--   now_ms     the server's clock where empty; then each session
-- REPLY sessions whose entries were removed, sessions put back on a queue
-- ERROR
local active, overdue, leased, dead, evictions = unpack(KEYS, 1, 5)
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local queues = {overdue = overdue, leased = leased, dead = dead}
local removed, mended = 0, 0
for at = 6, #KEYS do
  local session = ARGV[at - 4]
  local state = redis.call('HMGET', KEYS[at], 'epoch', 'queued', 'evicting', 'active_ms')
  if not state[1] then
    for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, session) end
    removed = removed + 1
  else
    local queue = queues[state[2]]
    local lost = queue and not redis.call('ZSCORE', queue, session)
    if lost then
      redis.call('ZADD', overdue, now, session)
      redis.call('HSET', KEYS[at], 'queued', 'overdue')
      redis.call('HDEL', KEYS[at], 'fence', 'attempts')
    end
    local unlisted = not redis.call('ZSCORE', active, session)
    if unlisted then redis.call('ZADD', active, state[4], session) end
    local forgotten = state[3] and not redis.call('ZSCORE', evictions, session)
    if forgotten then redis.call('HDEL', KEYS[at], 'evicting') end
    if lost or unlisted or forgotten then mended = mended + 1 end
  end
end
return {removed, mended}

-- Puts sessions on the eviction queue that were not touched since somebody looked; a message takes one off again.
-- KEYS
--   active
--   evictions  then the state of each session
-- ARGV
--   now_ms     the server's clock where empty
--   reason     idle or limit, for whoever looks; then each session and its activity as seen
-- REPLY how many were put on the queue
-- ERROR
local active, evictions = unpack(KEYS, 1, 2)
local now_ms, reason = unpack(ARGV, 1, 2)
local now = tonumber(now_ms)
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local chosen = 0
for at = 3, #KEYS do
  local session, seen_ms = ARGV[2 * at - 3], ARGV[2 * at - 2]
  local state = redis.call('HMGET', KEYS[at], 'epoch', 'active_ms', 'evicting')
  if not state[1] then
    redis.call('ZREM', active, session)
    redis.call('ZREM', evictions, session)
  elseif state[2] == seen_ms and not state[3] then
    redis.call('ZADD', evictions, now, session)
    redis.call('HSET', KEYS[at], 'evicting', reason)
    chosen = chosen + 1
  end
end
return chosen

-- Distributes the polling of the queues among pods: one pod does each work for all, as long as it renews its hold.
-- Also lists the pods that tick, and keeps the time of the last tick.
-- KEYS
--   ticks
--   processes
-- ARGV
--   now_ms
--   holder    the pod that calls
--   hold_ms   length of a hold; 0 gives up the caller's holds, and takes it off the list
--   keep_ms   time to live of all holds; then each work with the caller's word: crowded or quiet
-- FIELDS
-- REPLY for each work: the end of the hold, the holder's word, the holder
-- ERROR
local ticks, processes = unpack(KEYS)
local now_ms, holder, hold_ms, keep_ms = unpack(ARGV, 1, 4)
local works = {unpack(ARGV, 5)}
hold_ms = tonumber(hold_ms)
--- @include now
local reply, taken = {}, {}
for at = 1, #works, 2 do
  local held = redis.call('HGET', ticks, works[at]) or ''
  local ends, by = string.match(held, '^(%d+) %a+ (.*)$')
  local left_ms = (tonumber(ends) or 0) - now
  -- The caller ignores a hold longer than its own would be: its pod polls less often, or the clock was set back.
  if by and by ~= holder and (hold_ms == 0 or (left_ms > 0 and left_ms <= hold_ms)) then
    reply[#reply + 1] = held
  else
    local mine = string.format('%.0f %s %s', now + hold_ms, works[at + 1], holder)
    taken[#taken + 1] = works[at]
    taken[#taken + 1] = mine
    reply[#reply + 1] = mine
  end
end
local gone = {holder}
if #taken > 0 then
  -- A leader takes dead pods off the list for all.
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', processes, '-inf', now, 'LIMIT', 0, 100)) do
    gone[#gone + 1] = dead
  end
end
-- Removal first: a script that has written may continue when memory is short.
redis.call('ZREM', processes, unpack(gone))
if hold_ms > 0 then
  -- Two holds: a pod whose tick is late does not vanish from the list.
  redis.call('ZADD', processes, string.format('%.0f', now + 2 * hold_ms), holder)
end
if #taken == 0 then return reply end
taken[#taken + 1] = 'last'
taken[#taken + 1] = string.format('%.0f', now)
redis.call('HSET', ticks, unpack(taken))
redis.call('PEXPIRE', ticks, keep_ms)
redis.call('PEXPIRE', processes, keep_ms)
return reply

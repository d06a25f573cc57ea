-- Shares the looks at the queues out among the pods: one of them does each work, as long as it says so in time.
-- KEYS
--   ticks
-- ARGV
--   now_ms
--   holder    who asks
--   hold_ms   how long it may be silent; 0: it gives up what it holds
--   keep_ms   the time to live of all holds; then each work, and a word that the one who asks says of it
-- FIELDS
-- REPLY for each work until when it is held, what its holder says of it, and who that is
-- ERROR none of its own
local ticks = unpack(KEYS)
local now_ms, holder, hold_ms, keep_ms = unpack(ARGV, 1, 4)
local works = {unpack(ARGV, 5)}
hold_ms = tonumber(hold_ms)
--- @include now
local reply, taken = {}, {}
for at = 1, #works, 2 do
  local held = redis.call('HGET', ticks, works[at]) or ''
  local ends, by = string.match(held, '^(%d+) %a+ (.*)$')
  local left_ms = (tonumber(ends) or 0) - now
  -- A hold that lasts longer than one of the caller's own would is of a pod that looks more seldom, or of a clock that
  -- was set back: nobody waits for it.
  if by and by ~= holder and (hold_ms == 0 or (left_ms > 0 and left_ms <= hold_ms)) then
    reply[#reply + 1] = held
  else
    local mine = string.format('%.0f %s %s', now + hold_ms, works[at + 1], holder)
    taken[#taken + 1] = works[at]
    taken[#taken + 1] = mine
    reply[#reply + 1] = mine
  end
end
if #taken == 0 then return reply end
-- A removal first: once it has written, a script may go on when memory is short.
redis.call('HDEL', ticks, taken[1])
redis.call('HSET', ticks, unpack(taken))
redis.call('PEXPIRE', ticks, keep_ms)
return reply

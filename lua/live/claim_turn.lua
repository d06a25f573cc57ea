-- Takes over a running turn whose lease is over, in two steps: the first caller doubts its holder and grants it half a lease
-- to write again, as after an outage longer than a lease; then the next caller becomes the holder.
-- KEYS
--   state
--   turns
-- ARGV
--   session
--   now_ms    - for the server's clock
--   holder    the new one, which also identifies a repeated claim
--   lease_ms
-- FIELDS reads turn doubt
--   writes turn doubt
-- REPLY outcome (none, leased, doubted, claimed), the time until the lease ends in ms, the field turn
-- ERROR
local state, turns = unpack(KEYS)
local session, now_ms, holder, lease_ms = unpack(ARGV)
--- @include now
local turn, doubt = unpack(redis.call('HMGET', state, 'turn', 'doubt'))
--- @include turn
if status ~= 'r' then
  redis.call('ZREM', turns, session) -- [ended]
  return {'none', 0, turn or ''}
end
local left_ms = math.max(0, (redis.call('ZSCORE', turns, session) or 0) - now)
if seen_holder == holder then return {'claimed', left_ms, turn} end -- [made before]
if left_ms > 0 then return {'leased', left_ms, turn} end -- [lease over]
if doubt ~= seen_holder then
  local half_ms = math.floor(lease_ms / 2)
  redis.call('HSET', state, 'doubt', seen_holder) -- [doubted]
  redis.call('ZADD', turns, now + half_ms, session) -- [half a lease]
  return {'doubted', half_ms, turn}
end
turn = string.format('r %s %s %s %s', seen_generation, holder, seen_name, seen_first_seq)
redis.call('HSET', state, 'turn', turn) -- [new holder]
redis.call('HDEL', state, 'doubt') -- [no doubt]
redis.call('ZADD', turns, now + lease_ms, session) -- [lease]
return {'claimed', tonumber(lease_ms), turn}

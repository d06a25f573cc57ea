-- Gives up the place of a waiting turn, so that nobody waits for it any more.
-- KEYS
--   state
--   waiters
-- ARGV
--   ticket    of the turn, which is its holder once it has begun
-- FIELDS reads turn
-- REPLY the field turn if the turn has begun meanwhile, else an empty string
-- ERROR
local state, waiters = unpack(KEYS)
local ticket = ARGV[1]
local turn = redis.call('HGET', state, 'turn')
--- @include turn
local line, places = redis.call('GET', waiters) or '', {}
for place, seen_ms in string.gmatch(line, '(%x+) (%d+)') do
  if place ~= ticket then places[#places + 1] = place .. ' ' .. seen_ms end -- [the others stay]
end
if #places == 0 then
  redis.call('DEL', waiters)
elseif table.concat(places, ',') ~= line then
  redis.call('SET', waiters, table.concat(places, ','), 'KEEPTTL') -- [place left]
end
return status == 'r' and seen_holder == ticket and turn or '' -- [begun]

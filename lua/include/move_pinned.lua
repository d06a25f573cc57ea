-- Keeps the pinned ones of the messages that leave the window, in one field of the state: one behind the other, from
-- their places in the list. `moved` has the field, then the places.
-- READS messages state moved
-- SETS pinned
local pinned = {}
for at = 2, #moved do pinned[#pinned + 1] = redis.call('LINDEX', messages, moved[at]) end
if #moved > 0 then
  local pinned_field = moved[1]
  redis.call('HSET', state, pinned_field, table.concat(pinned)) -- [pinned stay]
end

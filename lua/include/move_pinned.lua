-- Stores the pinned messages that leave the window in one field of the state, concatenated. `moved` holds the field, then
-- the messages' places in the list.
-- READS messages state moved
-- SETS pinned
local pinned = {}
for at = 2, #moved do pinned[#pinned + 1] = redis.call('LINDEX', messages, moved[at]) end
if #moved > 0 then
  local pinned_field = moved[1]
  redis.call('HSET', state, pinned_field, table.concat(pinned)) -- [pinned stay]
end

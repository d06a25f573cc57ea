-- Keeps the pinned ones of the messages that leave the window: each in a field of the state, from its place in the list.
-- READS messages state moved
-- SETS
for at = 1, #moved, 2 do
  local pinned_field, element = moved[at], redis.call('LINDEX', messages, moved[at + 1])
  redis.call('HSET', state, pinned_field, element) -- [pinned stay]
end

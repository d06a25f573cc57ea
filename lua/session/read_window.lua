-- Reads the state and a part of the window: at least one message, and few more once they have budget_bytes. Works when
-- memory has run out, unlike a transaction, which the server then refuses.
-- KEYS
--   messages
--   state
-- ARGV
--   first         place of the first message of the part
--   budget_bytes
-- FIELDS reads all large_bytes
-- REPLY state, as alternating fields and values; messages
-- ERROR
local messages, state = unpack(KEYS)
local first, budget_bytes = unpack(ARGV)
budget_bytes = tonumber(budget_bytes)
local count = redis.call('LLEN', messages)
local large_bytes = tonumber(redis.call('HGET', state, 'large_bytes') or 0) or 0
if count * 4096 + large_bytes <= budget_bytes then -- [small]
  return {redis.call('HGETALL', state), redis.call('LRANGE', messages, first, -1)}
end
-- Redis finds a place in a list from the nearer end, which is slow for each message of thousands: an eighth at a time.
local elements, size_bytes = {}, 0
local step = math.max(1, math.floor(budget_bytes / 8 / math.max(4096, large_bytes / count)))
for at = first, count - 1, step do
  for _, element in ipairs(redis.call('LRANGE', messages, at, at + step - 1)) do
    elements[#elements + 1], size_bytes = element, size_bytes + #element
  end
  if size_bytes >= budget_bytes then break end -- [budget]
end
return {redis.call('HGETALL', state), elements}

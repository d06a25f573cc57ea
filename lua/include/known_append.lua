-- Gives the first reply again when the append was made before: its token is in the ring of append ids, which
-- remember_append describes. What came after it is counted back from the last seq.
-- READS state token ids total counters
-- SETS b c d oldest ring name at
local b, c, d = unpack(redis.call('HMGET', state, 'ids_b', 'ids_c', 'ids_d'))
b, c, d = b or '', c or '', d or ''
local oldest = string.sub(ids, 1, 1)
local ring = oldest == 'b' and b .. c .. d or oldest == 'c' and c .. d .. b or d .. b .. c -- [ring]
ring = ring .. string.sub(ids, 2)
local name = string.sub(token, 1, 8)
local at = string.find(ring, name, -160, true)
while at and at % 10 ~= 1 do at = string.find(ring, name, at + 1, true) end
if at then
  local function entry(at)
    local high, low = string.byte(ring, at + 8, at + 9)
    return (high % 128) * 256 + low, high >= 128 and 1 or 0
  end
  local last_seq = tonumber(total)
  for newer = at + 10, #ring, 10 do last_seq = last_seq - entry(newer) end
  local count, began = entry(at)
  return {counters, last_seq - count + 1, last_seq, began, 1}
end

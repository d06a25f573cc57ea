-- Computes the bytes of the window's large messages, those over 4,096 bytes, without the elements that leave it. Small ones
-- are not counted: the limit of messages bounds them. Reads elements only if the window has large ones.
-- READS messages state first_leaving last_leaving
-- SETS large_before large_bytes
local large_before = tonumber(redis.call('HGET', state, 'large_bytes') or 0) or 0
local large_bytes = large_before
if large_before > 0 then
  for at = first_leaving, last_leaving, 16 do
    for _, element in ipairs(redis.call('LRANGE', messages, at, math.min(at + 15, last_leaving))) do
      if #element > 4096 then large_bytes = math.max(0, large_bytes - #element) end
    end
  end
end

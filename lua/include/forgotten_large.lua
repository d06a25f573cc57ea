-- Subtracts the large messages that are removed from the window.
-- READS state first_block change
-- SETS large_gone
local large_gone = 0
for at = 11, first_block - 1, 3 do
  if #ARGV[at + 1] > 4096 then large_gone = large_gone + #ARGV[at + 1] end
end
if large_gone > 0 then
  local large_before = tonumber(redis.call('HGET', state, 'large_bytes') or 0) or 0
  change('large_bytes', math.max(0, large_before - large_gone))
end

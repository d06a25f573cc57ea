-- Splits a description behind its nonces: owner and tag end at birth_end; then may follow, with its length, the last resent
-- write of each of at most 16 processes, as in overtaken.lua.
-- READS described ring_end
-- SETS birth_end resent
local birth_end, resent = ring_end, nil
for part = 1, described and 3 or 0 do
  local size, start = string.match(described, '^(%d+):()', birth_end + 1)
  if size and part == 3 then resent = string.sub(described, start, start + size - 1) end -- [resent]
  if size and part < 3 then birth_end = start + size - 1 end -- [owner and tag]
end

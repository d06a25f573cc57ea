-- Notes the bytes of the window's large messages after the replacement of one. Refuses if they grow beyond the limit.
-- READS messages state limits place new change
-- SETS first_leaving last_leaving large_before large_bytes bytes_limit
local first_leaving, last_leaving = tonumber(place), tonumber(place)
--- @include large_left
if #new > 4096 then large_bytes = large_bytes + #new end
--- @include large_limit

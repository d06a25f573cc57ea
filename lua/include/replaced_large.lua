-- Notes the bytes of the window's large messages after the replacement of one.
-- READS messages state place new change
-- SETS first_leaving last_leaving large_before large_bytes
local first_leaving, last_leaving = tonumber(place), tonumber(place)
--- @include large_left
if #new > 4096 then large_bytes = large_bytes + #new end
if large_bytes ~= large_before then change('large_bytes', string.format('%d', large_bytes)) end

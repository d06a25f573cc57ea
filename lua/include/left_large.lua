-- Computes the bytes of the window's large messages after the first `count` elements have left it.
-- READS messages state count
-- SETS first_leaving last_leaving has_large large_before large_bytes
local first_leaving, last_leaving = 0, count - 1
--- @include large_left
local has_large = large_before > 0

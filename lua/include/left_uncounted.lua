-- Computes how many elements that stay in the window are pinned or gaps, formatted as in the counters.
-- READS uncounted uncounted_count
-- SETS left_count uncounted
local left_count = (tonumber(uncounted) or 0) - uncounted_count
uncounted = left_count > 0 and string.format('+%d', left_count) or '' -- [uncounted]

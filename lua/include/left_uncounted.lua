-- Computes how many elements that stay in the window are pinned or gaps, and how many seqs of it have no element,
-- formatted as in the counters.
-- READS uncounted uncounted_count hidden first_seq next_seq count
-- SETS left_count left_hidden uncounted hidden
local left_count = (tonumber(uncounted) or 0) - uncounted_count
uncounted = left_count > 0 and string.format('+%d', left_count) or '' -- [uncounted]
local left_hidden = (tonumber(hidden) or 0) + next_seq - first_seq - count
hidden = left_hidden < 0 and string.format('%d', left_hidden) or '' -- [hidden]

-- Parses the other limits of the window, but only if it may be overdue, because each number costs time.
-- READS window_count threshold token_limit limits
-- SETS recent_limit window_limit
local recent_limit, window_limit = nil, nil
if window_count - threshold > 0 or token_limit ~= '-' then
  recent_limit, window_limit = string.match(limits, '%S+ %S+ %S+ (%d+) (%d+)')
end

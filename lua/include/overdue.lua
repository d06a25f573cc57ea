-- True if a window is too long: more messages than the threshold; or more tokens than the limit, if there is one, and
-- more messages than recent_limit. Same rule as `Settings.is_overdue`.
-- READS window_count window_tokens threshold token_limit recent_limit
-- SETS is_overdue
local is_overdue = window_count > tonumber(threshold)
  or token_limit ~= '-' and window_count > tonumber(recent_limit) and tonumber(window_tokens) > tonumber(token_limit)

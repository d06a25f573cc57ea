-- Whether a window is too long: it has more messages than the threshold; or more tokens than the limit, if there is
-- one, and more messages than those that stay as they are. `Settings.is_overdue` says the same.
-- READS window_count window_tokens threshold token_limit recent_limit
-- SETS is_overdue
local is_overdue = window_count > tonumber(threshold)
  or token_limit ~= '-' and window_count > tonumber(recent_limit) and tonumber(window_tokens) > tonumber(token_limit)

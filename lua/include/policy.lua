-- Applies the policy of a session: never summarised if it has a w, not counted for the limit if it has an x, a number is its
-- own time to live. A session without a policy has the time to live of the caller. A b says that bodies have left the window:
-- its originals expire with it, whatever else they hold.
-- READS policy kept_ms
-- SETS is_whole is_watched sign kept_ms
local is_whole, is_watched, sign = false, false, 1
if policy ~= '' then
  is_whole, is_watched = string.find(policy, 'w', 1, true) ~= nil, string.find(policy, '[x%d]') ~= nil
  if string.find(policy, 'x', 1, true) then sign = -1 end
  kept_ms = string.match(policy, '%d+') or kept_ms -- [its own time]
end

-- Parses the counters of a state into strings. `window_first_seq` is nil if they are unreadable or have another layout version.
-- `uncounted` is '+' and the number of elements that are pinned or gaps; empty means 0. `hidden` is '-' and the number of
-- seqs without an element of their own, since a gap stands for one or more seqs; empty means 0. `evicting` is a space and
-- the reason of the eviction; empty means that the session is not on the eviction queue. `policy` is '~' and the policy as in
-- policy.lua; empty means none.
-- READS counters
-- SETS window_first_seq total window_tokens active_ms expires_ms marks uncounted hidden policy evicting
local window_first_seq, total, window_tokens, active_ms, expires_ms, marks =
  string.match(counters, '^v1 (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
local uncounted, hidden, policy, evicting = '', '', '', ''
if marks ~= '' then
  uncounted, hidden, policy, evicting = string.match(marks or '?', '^(%+?%d*)(%-?%d*)(~?b?w?x?%d*)( ?%a*)$') -- '?' is no mark
  window_first_seq = uncounted and window_first_seq
end

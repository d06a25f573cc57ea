-- The counters of a state, as text: nil, all of them, for what are none, or of another layout. `uncounted` is how many
-- of the window's elements are pinned or gaps, behind a plus; empty for none. `evicting` is why the session is on the
-- eviction queue, behind a space; empty when it is not there.
-- READS counters
-- SETS window_first_seq total window_tokens active_ms expires_ms uncounted evicting
local window_first_seq, total, window_tokens, active_ms, expires_ms, uncounted, evicting =
  string.match(counters, '^v1 (%d+) (%d+) (%d+) (%d+) (%d+)(%+?%d*)( ?%a*)$')

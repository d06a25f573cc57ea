-- Parses the counters of a state. Refuses unreadable counters; include it before the first write.
-- READS counters
-- SETS window_first_seq total window_tokens active_ms expires_ms marks uncounted hidden policy evicting
--- @include parsed
if not window_first_seq then
  --- @include layout
  return redis.error_reply('CORRUPT counters')
end

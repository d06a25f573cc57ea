-- Notes the last activity and the expiry, at most once per second, or per sixteenth of a short time to live. Another
-- process may have given the session longer: its expiry only moves back if a worker had extended it.
-- READS active evictions session created now kept_ms sign is_watched active_ms expires_ms evicting
-- SETS aged active_ms expires_ms
local aged = created or evicting ~= '' or now - active_ms >= math.min(1000, kept_ms / 16) -- [used again]
if aged then
  active_ms = math.max(now, active_ms)
  redis.call('ZADD', active, sign * active_ms, session)
  expires_ms = math.max(now + kept_ms, evicting == '' and tonumber(expires_ms) or 0) -- [never earlier]
  --- @include watched
end

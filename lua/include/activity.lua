-- Notes the last activity and the expiry, at most once per second, or per sixteenth of a short time to live. Another
-- process may have given the session longer: its expiry only moves back if a worker had extended it. Both times become
-- strings: for each number that a command is given, the server formats 17 digits.
-- READS active evictions session created now kept_ms sign is_watched active_ms expires_ms evicting
-- SETS aged active_ms expires_ms
local aged = created or evicting ~= '' or now - active_ms >= math.min(1000, kept_ms / 16) -- [used again]
if aged then
  active_ms = string.format('%d', math.max(now, active_ms))
  redis.call('ZADD', active, sign == 1 and active_ms or '-' .. active_ms, session)
  expires_ms = string.format('%d', math.max(now + kept_ms, evicting == '' and expires_ms or 0)) -- [never earlier]
  --- @include watched
end

-- Updates the last activity at most once per second, and the expiry only once a part of the time to live has passed.
-- READS active session created now kept_ms active_ms expires_ms
-- SETS aged active_ms expires_ms
local aged = false
if created or now - active_ms >= 1000 then
  redis.call('ZADD', active, now, session)
  active_ms = now
  -- The extra second: the next check is at least a second away.
  aged = expires_ms - now < kept_ms + 1000
  if aged then
    --- @include expiry
  end
end

-- Notes that the session is active, at most once a second, and when its keys expire, once a part of their time is over.
-- READS active session created now kept_ms active_ms expires_ms
-- SETS aged active_ms expires_ms
local aged = false
if created or now - active_ms >= 1000 then
  redis.call('ZADD', active, now, session)
  active_ms = now
  -- Nothing is looked at within the next second.
  aged = expires_ms - now < kept_ms + 1000
  if aged then
    --- @include expiry
  end
end

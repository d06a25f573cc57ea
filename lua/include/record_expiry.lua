-- Sets the time at which a record expires; nil leaves its expiry alone. Refuses a caller's clock that is far behind.
-- READS ttl_ms now_ms
-- SETS expires_ms
local expires_ms = nil
if ttl_ms ~= '-' and ttl_ms ~= '=' then
  --- @include now
  local kept_ms = ttl_ms
  --- @include timely
  expires_ms = now + kept_ms
end

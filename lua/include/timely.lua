-- Refuses a caller's time so far behind the server's clock that the session would expire at once.
-- READS time now kept_ms
-- SETS
if not time and now + kept_ms <= redis.call('TIME')[1] * 1000 then return redis.error_reply('PAST ' .. now) end

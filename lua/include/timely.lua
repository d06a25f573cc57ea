-- Refuses a caller's time that lies so far behind the server's that what is written then is gone at once.
-- READS time now kept_ms
-- SETS
if not time and now + kept_ms <= redis.call('TIME')[1] * 1000 then return redis.error_reply('PAST ' .. now) end

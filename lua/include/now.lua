-- Sets the time in ms: the caller's now_ms, or the server's clock if that is '-'.
-- READS now_ms
-- SETS time now
local time = now_ms == '-' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)

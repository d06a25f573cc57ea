-- Takes one token of a rate limit that all pods share: a sustained rate, with bursts.
-- KEYS
--   rate        the time in microseconds at which all taken tokens are earned, and the nonce of the last take
-- ARGV
--   interval_us microseconds to earn one token
--   burst_count tokens that may be taken at once
--   nonce       of this call: resent, it takes nothing more
-- FIELDS reads
--   writes
-- REPLY milliseconds to wait before the next try; 0 means taken
-- ERROR
local rate = unpack(KEYS)
local interval_us, burst_count, nonce = unpack(ARGV)
interval_us = tonumber(interval_us)
local room_us = interval_us * burst_count
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local earned, last = string.match(redis.call('GET', rate) or '', '^(%d+) (%x+)$')
if last == nonce then return 0 end
-- If the clock was set back, a caller waits at most for one full burst.
local earned_us = math.min(math.max(tonumber(earned) or 0, now_us), now_us + room_us) + interval_us
local wait_us = earned_us - now_us - room_us
if wait_us > 0 then return math.ceil(wait_us / 1000) end
local left_ms = math.ceil((earned_us - now_us) / 1000)
redis.call('SET', rate, string.format('%.0f %s', earned_us, nonce), 'PX', left_ms)
return 0

-- Takes one of what a name may do: so many a second in the long run, so many at once, all pods together.
-- KEYS
--   rate        when all that was taken has been earned, in microseconds, and the nonce of the last call that took
-- ARGV
--   interval_us microseconds in which one is earned
--   burst_count how many at once
--   nonce       of this call: sent again, it takes nothing more
-- FIELDS reads
--   writes
-- REPLY ms to wait before one may be taken; 0 it was taken
-- ERROR none of its own
local rate = unpack(KEYS)
local interval_us, burst_count, nonce = unpack(ARGV)
interval_us = tonumber(interval_us)
local room_us = interval_us * burst_count
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local earned, last = string.match(redis.call('GET', rate) or '', '^(%d+) (%x+)$')
if last == nonce then return 0 end
-- A clock that was set back must not stop anybody for longer than all of the room.
local earned_us = math.min(math.max(tonumber(earned) or 0, now_us), now_us + room_us) + interval_us
local wait_us = earned_us - now_us - room_us
if wait_us > 0 then return math.ceil(wait_us / 1000) end
local left_ms = math.ceil((earned_us - now_us) / 1000)
redis.call('SET', rate, string.format('%.0f %s', earned_us, nonce), 'PX', left_ms)
return 0

-- Updates count and bytes of the pinned messages. Refuses if they exceed the session's limits. `pins` holds the changes
-- (negative if unpinned) and the limits.
-- READS state pins change
-- SETS more_pins more_bytes pins_limit pins_bytes_limit pins_count pins_bytes
local more_pins, more_bytes, pins_limit, pins_bytes_limit = string.match(pins, '(%S+),(%S+),(%d+),(%d+)')
local pins_count, pins_bytes = string.match(redis.call('HGET', state, 'pins') or '0 0', '^(%d+) (%d+)$')
if not pins_count then return redis.error_reply('CORRUPT pins') end
pins_count, pins_bytes = pins_count + more_pins, pins_bytes + more_bytes
if tonumber(more_pins) > 0 and pins_count > tonumber(pins_limit)
  or tonumber(more_bytes) > 0 and pins_bytes > tonumber(pins_bytes_limit) then
  return redis.error_reply('PINS ' .. pins_count .. ' ' .. pins_bytes .. ' ' .. pins_limit .. ' ' .. pins_bytes_limit)
end
change('pins', string.format('%d %d', math.max(0, pins_count), math.max(0, pins_bytes))) -- [noted]

-- Notes the bytes of the window's large messages. Refuses if they grow beyond the limit.
-- READS limits large_before large_bytes change
-- SETS bytes_limit
local bytes_limit = string.match(limits, '%S+ %S+ %S+ %d+ %d+ %d+ (%d+)')
if large_bytes > large_before and large_bytes > tonumber(bytes_limit) then
  return redis.error_reply('BYTES ' .. large_before .. ' ' .. bytes_limit)
end
if large_bytes ~= large_before then change('large_bytes', string.format('%d', large_bytes)) end

-- Makes the elements of an append and its changes of the state. Refuses an append that the limits do not allow, and a window
-- that has not the length in the counters.
-- READS expect epoch total state ids policy kept_ms window_first_seq hidden message_count messages counters first_set first_drop limits set_count pins uncounted window_tokens tokens threshold token_limit now first_message
-- SETS total is_whole is_watched sign kept_ms count_before found_count changes uncounted window_count window_tokens recent_limit window_limit is_overdue elements heavy
--- @include expected
--- @include policy
local count_before = total - window_first_seq + 1 + (tonumber(hidden) or 0) -- [hidden]
local found_count = message_count > 0 and redis.call('LLEN', messages) or count_before
if found_count ~= count_before then return {counters, epoch or redis.call('HGET', state, 'epoch'), found_count} end
--- @include changes
local function change(field, value) changes[#changes + 1], changes[#changes + 2] = field, value end
if pins ~= '-' then
  --- @include pins
  uncounted = string.format('+%d', (tonumber(uncounted) or 0) + more_pins) -- [pinned]
end
local window_count = count_before + message_count - (tonumber(uncounted) or 0) -- [counted]
total, window_tokens = total + message_count, window_tokens + tokens
--- @include window_limits
--- @include overdue
if is_overdue and message_count > 0 and window_count > tonumber(window_limit) then
  return redis.error_reply('FULL ' .. window_count - message_count)
end
local elements, heavy = {}, ''
if message_count > 0 then
  --- @include stamp
  --- @include stamped
end

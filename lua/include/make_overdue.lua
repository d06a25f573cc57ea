-- Queues a session as overdue if its window is too long; with due time 0, ahead of all others, once it is half full.
-- READS is_whole state overdue session now is_overdue window_count window_limit change
-- SETS is_overdue queued is_urgent
is_overdue = is_overdue and not is_whole -- [kept whole]
local queued = is_overdue and redis.call('HGET', state, 'queued')
local is_urgent = is_overdue and window_count * 2 > tonumber(window_limit) -- [half full]
if is_overdue and not queued or is_urgent and queued == 'overdue' then
  redis.call('ZADD', overdue, is_urgent and 0 or now, session)
  change('queued', 'overdue')
end

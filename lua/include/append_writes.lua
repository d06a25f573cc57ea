-- Makes the writes of an append but its messages, see push_messages.lua. If a crash cuts the server's log here, a restart
-- replays the first writes, and a resent append runs again: so all of them set values instead of adding to them.
-- READS ids token resent state change now counters overtaking message_count created evicting evictions session is_overdue is_whole window_count window_limit overdue active_ms kept_ms active sign expires_ms is_watched window_first_seq total window_tokens uncounted hidden policy changes first_drop originals messages turned
-- SETS ids counters is_overdue queued is_urgent aged active_ms expires_ms
--- @include remember_append
if evicting ~= '' then redis.call('ZREM', evictions, session) end -- [off the eviction queue]
--- @include make_overdue
--- @include activity
counters = string.format('v1 %s %d %d %s %s%s%s%s', window_first_seq, total, window_tokens, active_ms, expires_ms, uncounted, hidden, policy) -- [new]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(changes))
if #ARGV >= first_drop then redis.call('HDEL', state, unpack(ARGV, first_drop)) end
if aged then
  redis.call('PEXPIREAT', state, expires_ms)
  redis.call('PEXPIREAT', messages, expires_ms)
  if not created then redis.call('PEXPIREAT', turned, expires_ms) end
  -- Without a summary, a prune or a body that left it, a window has no originals.
  if window_first_seq ~= '1' or string.find(policy, 'b', 1, true) then redis.call('PEXPIREAT', originals, expires_ms) end -- [bodies]
end

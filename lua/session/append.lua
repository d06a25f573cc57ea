-- Appends messages and changes state fields: all or nothing, and once per token.
-- A call without messages only changes the state. Either call creates a missing session.
-- A window of more messages than threshold (at most window_limit) is overdue for a summary; so is a window of more tokens
-- than token_limit (- for no limit) and more messages than recent_limit. A half full window goes first: due since 0.
-- fresh: 1 if this append cannot have been made before, 0 if it may have been; 2 and 3 are the same for a resent call, or
-- one that a client may resend by itself. Only 1 does not look for its token. tokens: of the unpinned messages.
-- expect: the last seq the caller saw, @ and the epoch, or @ with either or none, and / and the newest append in hex digits;
-- - is none without the epoch in the reply, which an append with reads does not need. now_ms: - for the server's clock. pins:
-- number and bytes of the pinned messages, and the session's limits of both, with commas; - for none.
-- limits may end with ~ and the policy and % and the time zone of a session that the append creates, and @ and the owner,
-- which an existing session must have. The key owners is needed only with an owner.
-- KEYS
--   messages
--   state
--   active
--   overdue
--   originals
--   turned
--   leased
--   dead
--   evictions
--   fences
--   owners
-- ARGV
--   session
--   limits   kept_ms threshold token_limit recent_limit window_limit params_limit bytes_limit: one argument, because each costs time
--   request  fresh message_count set_count tokens expect now_ms pins: one argument, too
--   token    7 bytes name the append, 3 the call, 12 the sending, 8 a new epoch; then messages, set_count fields and values, fields to drop
-- FIELDS reads counters epoch owner ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes param:
--   writes counters epoch owner zone ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes param: waiting last_intent last_result plan
-- REPLY counters@epoch, and ! if bodies should leave the window; if the append created the session, or was made before: counters first_seq last_seq created
--   duplicate epoch; if the window has not the length in the counters, without any write: counters epoch window_count
-- ERROR OWNER other · OVERTAKEN sending · PAST now_ms · CONFLICT last_seq cleared · FULL window_count · PARAMS params_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, active, overdue, originals, turned, leased, dead, evictions, fences, owners = unpack(KEYS)
local session, limits, request, token = unpack(ARGV, 1, 4)
local kept_ms, threshold, token_limit = string.match(limits, '(%d+) (%d+) (%S+)')
local fresh, message_count, set_count, tokens, expect, now_ms, pins =
  string.match(request, '(%d) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+)')
message_count = tonumber(message_count)
local first_message, first_set, first_drop = 5, 5 + message_count, 5 + message_count + 2 * set_count
--- @include now
--- @include timely
--- @include append_state
--- @include counters
local overtaking, sending = nil, (resent or fresh == '2' or fresh == '3') and string.sub(token, 11, 22)
--- @include overtaken
if fresh ~= '1' then -- [made before]
  --- @include known_append
end
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
-- Only writes follow, the messages last. If a crash cuts the server's log here, a restart replays the first writes, and a
-- resent append runs again: so all writes but the messages set values instead of adding to them.
--- @include remember_append
if created then
  --- @include begin_session
end
if evicting ~= '' then redis.call('ZREM', evictions, session) end -- [off the eviction queue]
--- @include make_overdue
--- @include activity
counters = string.format('v1 %s %d %d %d %d%s%s%s', window_first_seq, total, window_tokens, active_ms, expires_ms, uncounted, hidden, policy) -- [new]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(changes))
if #ARGV >= first_drop then redis.call('HDEL', state, unpack(ARGV, first_drop)) end
-- Without a summary, a prune or a body that left it, a window has no originals: the nil ends the list.
local has_originals = window_first_seq ~= '1' or string.find(policy, 'b', 1, true) -- [bodies]
if aged then for _, key in ipairs({state, messages, not created and turned or nil, has_originals and originals or nil}) do redis.call('PEXPIREAT', key, expires_ms) end end -- [all expire]
if message_count > 0 then redis.call('RPUSH', messages, unpack(elements)) end
if count_before == 0 then redis.call('PEXPIREAT', messages, expires_ms) end
if created then return {counters, 1, total, 1, 0, epoch} end
-- One string costs the server less than a table, in which it looks for seven types of reply.
return counters .. '@' .. (epoch or '') .. heavy

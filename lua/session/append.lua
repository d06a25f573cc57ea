-- Appends messages and changes state fields: all or nothing, and once for a token.
-- A call without messages only changes the state: an append of none. Either creates the session if it is missing.
-- A window of more messages than threshold (at most window_limit, which no window exceeds) is overdue for a summary; so
-- is one of more tokens than token_limit (- for none) and more messages than recent_limit. Once it is half full, it goes
-- before all others: due since 0.
-- fresh: 1 if this append cannot have been made before, 0 if it may have been; sent again, these are 2 and 3, and a
-- first one that does not look whether it was made may still be on its way. tokens: of all these messages. expect: the
-- last seq the caller saw, or -. now_ms: - for the server's clock. pins: of these messages, how many are pinned and
-- their bytes, and the limits of both for a session, with commas; - for none.
-- KEYS
--   messages
--   state
--   originals
--   vectors
--   active
--   overdue
--   leased
--   dead
--   evictions
--   fences
-- ARGV
--   session
--   limits   kept_ms threshold token_limit recent_limit window_limit params_limit: one argument, as each costs time
--   request  fresh message_count set_count tokens expect now_ms pins: likewise
--   token    7 bytes name this append, 3 this call of it, 8 make a new epoch unique; then messages, set_count fields and values, drops
-- FIELDS reads counters epoch ids_a ids_b ids_c ids_d repeated queued pins param:
--   writes counters epoch ids_a ids_b ids_c ids_d repeated queued pins param: waiting last_intent last_result plan
-- REPLY counters; if the append created the session, or was made before: counters first_seq last_seq created
--   duplicate; if the window is not as long as the counters say, and nothing is written: counters epoch window_count
-- ERROR PAST now_ms · CONFLICT last_seq · FULL window_count · PARAMS params_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, originals, vectors, active, overdue, leased, dead, evictions, fences = unpack(KEYS)
local session, limits, request, token = unpack(ARGV, 1, 4)
local kept_ms, threshold, token_limit, recent_limit, window_limit, params_limit =
  string.match(limits, '(%d+) (%d+) (%S+) (%d+) (%d+) (%d+)')
local fresh, message_count, set_count, tokens, expect, now_ms, pins =
  string.match(request, '(%d) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+)')
message_count = tonumber(message_count)
local first_message, first_set = 5, 5 + message_count
local first_drop = first_set + 2 * set_count
--- @include now
--- @include timely
local counters, ids, repeated = unpack(redis.call('HMGET', state, 'counters', 'ids_a', 'repeated'))
local created = not counters
if created and redis.call('EXISTS', messages, state) > 0 then return redis.error_reply('CORRUPT no counters') end
counters, ids = counters or 'v1 1 0 0 0 0', ids or 'b'
--- @include counters
-- If one was sent again, what seems fresh may be the first sending of it, overtaken by the second.
if fresh ~= '1' or repeated then -- [made before]
  --- @include known_append
end
if expect ~= '-' and tonumber(expect) ~= tonumber(total) then return redis.error_reply('CONFLICT ' .. total) end
local count_before = total - window_first_seq + 1
local found_count = message_count > 0 and redis.call('LLEN', messages) or count_before
if found_count ~= count_before then return {counters, redis.call('HGET', state, 'epoch'), found_count} end
--- @include changes
local function change(field, value) changes[#changes + 1], changes[#changes + 2] = field, value end
if pins ~= '-' then
  --- @include pins
  uncounted = string.format('+%d', (tonumber(uncounted) or 0) + more_pins) -- [pinned]
end
local window_count = count_before + message_count - (tonumber(uncounted) or 0) -- [counted]
total, window_tokens = total + message_count, window_tokens + tokens
--- @include overdue
if is_overdue and message_count > 0 and window_count > tonumber(window_limit) then
  return redis.error_reply('FULL ' .. window_count - message_count)
end
-- From here on only writes, the messages last. A crash may cut the server's log within them, and later starts then
-- carry out the first ones and, if it was sent again, this append as well: all but the messages is set, not added.
local elements = {}
if message_count > 0 then
  --- @include stamp
  for at = first_message, first_set - 1 do elements[#elements + 1] = ARGV[at] .. stamp end
end
--- @include remember_append
if created then
  --- @include begin_session
end
--- @include make_overdue
--- @include activity
counters = string.format('v1 %s %d %d %d %d', window_first_seq, total, window_tokens, active_ms, expires_ms) .. uncounted -- [new]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(changes))
if #ARGV >= first_drop then redis.call('HDEL', state, unpack(ARGV, first_drop)) end
if evicting ~= '' then redis.call('ZREM', evictions, session) end -- [off the eviction queue]
-- A session that begins has neither originals nor vectors: the nil ends the list.
if aged then for _, key in ipairs({state, messages, not created and originals or nil, vectors}) do redis.call('PEXPIREAT', key, expires_ms) end end -- [all expire]
if message_count > 0 then redis.call('RPUSH', messages, unpack(elements)) end
if count_before == 0 then redis.call('PEXPIREAT', messages, expires_ms) end
if created then return {counters, 1, total, 1, 0} end
return counters

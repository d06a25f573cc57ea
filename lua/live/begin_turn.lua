-- Begins a turn: appends its question as append.lua does, and starts its lease and its log. The same holder begins a turn once;
-- an id that runs or has ended is refused. A turn that failed or was lost without a reply may begin again without messages,
-- while its question is the newest message.
-- See append.lua for limits, request and token.
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
--   live
--   waiters
--   turns
--   owners
-- ARGV
--   session
--   limits
--   begun    name holder ticket lease_ms places_limit again_first again_last waited: the ticket of a turn that waits, - for none; the seqs of the question that is there, - for none; 1 if it has had a place in the line
--   request  fresh message_count set_count tokens expect now_ms pins: one argument, too
--   token    then messages, set_count fields and values, fields to drop
-- FIELDS reads counters epoch owner ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes param: turn
--   writes counters epoch owner zone ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes param: waiting last_intent last_result plan instruction title turn stop doubt
-- REPLY as append.lua
-- ERROR TURN running generation first_seq, or ended first_seq last_seq flags total, or busy generation left_ms places, or full generation left_ms places · OWNER other · OVERTAKEN sending · PAST now_ms · CONFLICT last_seq cleared · FULL window_count · PARAMS params_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, active, overdue, originals, turned, leased, dead, evictions, fences, live, waiters, turns, owners = unpack(KEYS)
local session, limits, begun, request, token = unpack(ARGV, 1, 5)
local name, holder, ticket, lease_ms, places_limit, again_first, again_last, waited =
  string.match(begun, '(%x+) (%x+) (%S+) (%d+) (%d+) (%S+) (%S+) (%d)')
local first_message = 6
--- @include append_request
local turn = redis.call('HGET', state, 'turn')
--- @include turn
if status == 'r' and seen_name == name then
  if seen_holder == holder then -- [begun before]
    --- @include known_append
    return {counters, tonumber(seen_first_seq), tonumber(total), 0, 0, epoch}
  end
  return redis.error_reply('TURN running ' .. seen_generation .. ' ' .. seen_first_seq) -- [runs]
end
--- @include ended_turn
if record_at then
  local b, c, d, e, f, g, h, i, flags = string.byte(records, record_at + 7, record_at + 15)
  local first_seq = (((b * 256 + c) * 256 + d) * 256 + e) * 256 + f
  local last_seq = first_seq + (g * 256 + h) * 256 + i
  local is_again = first_seq == tonumber(again_first) and last_seq == tonumber(again_last) and last_seq == tonumber(total) -- [newest]
  if not is_again or flags ~= 3 and flags ~= 4 then -- [failed or lost]
    return redis.error_reply(string.format('TURN ended %d %d %d %d', first_seq, last_seq, flags, total))
  end
elseif again_first ~= '-' then
  return redis.error_reply('CONFLICT ' .. total) -- [question there]
end
-- A question that waits goes with its session: it would begin the session anew, behind a clear or a forget.
if created and waited == '1' then return redis.error_reply('CONFLICT 0 cleared') end -- [waited]
--- @include wait_in_line
--- @include append_checks
-- Only writes follow, first one that a full Redis refuses.
local generation = redis.call('INCR', fences) .. '-' .. holder -- [generation]
local first_seq = again_first == '-' and total - message_count + 1 or tonumber(again_first)
change('turn', string.format('r %s %s %s %d', generation, holder, name, first_seq))
redis.call('ZADD', turns, now + lease_ms, session) -- [lease]
if record_at then
  redis.call('SET', turned, string.sub(records, 1, record_at - 1) .. string.sub(records, record_at + 16), 'KEEPTTL') -- [again]
end
if created then
  --- @include begin_session
end
--- @include append_writes
redis.call('HDEL', state, 'stop', 'doubt') -- [of an earlier turn]
if has_place and before < #places then
  redis.call('SET', waiters, table.concat(places, ','), 'PX', 10000) -- [place left]
elseif has_place then
  redis.call('DEL', waiters) -- [last place]
end
local line = string.format('{"type":"message","first_seq":%d,"last_seq":%d}\n', first_seq, total)
redis.call('SET', live, line, 'PXAT', string.format('%d', expires_ms)) -- [log]
--- @include push_messages
redis.pcall('SPUBLISH', live, generation .. ' 0\n' .. line) -- [told]
if created then return {counters, 1, total, 1, 0, epoch} end
return counters .. '@' .. (epoch or '') .. heavy

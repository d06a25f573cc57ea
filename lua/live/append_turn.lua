-- Appends whole messages of a running turn and changes state fields as append.lua does, and ends the turn if its end is given.
-- The log gets a line of the messages and one of the end. If it has not the bytes that the caller knows, it is left, so
-- that the caller writes it anew; at the end it goes, and the messages tell the reply.
-- See append.lua for limits, request and token.
-- KEYS
--   messages
--   state
--   active
--   overdue
--   originals
--   turned
--   evictions
--   live
--   turns
-- ARGV
--   session
--   limits
--   turned_to  generation holder offset lease_ms keep_ms with_originals status flags: the fence; the bytes of the log; the letter of the outcome, - without an end, and the flags of the record
--   end_head   the line of the end before the seq of the reply; empty without an end
--   end_tail   the rest of the line
--   request    fresh message_count set_count tokens expect now_ms pins: one argument, too
--   token      then messages, set_count fields and values, fields to drop
-- FIELDS reads counters epoch owner ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes param: turn
--   writes counters ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes param: waiting last_intent last_result plan instruction title turn stop doubt
-- REPLY as append.lua
-- ERROR TURN lost · OWNER other · OVERTAKEN sending · PAST now_ms · CONFLICT last_seq cleared · FULL window_count · PARAMS params_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, active, overdue, originals, turned, evictions, live, turns = unpack(KEYS)
local session, limits, turned_to, end_head, end_tail, request, token = unpack(ARGV, 1, 7)
local generation, holder, offset, lease_ms, keep_ms, with_originals, outcome, flags =
  string.match(turned_to, '(%S+) (%x+) (%d+) (%d+) (%d+) (%d) (%S) (%d+)')
local first_message = 8
--- @include append_request
--- @include known_append
local turn = redis.call('HGET', state, 'turn')
--- @include turn
local is_own = status == 'r' and seen_generation == generation and seen_holder == holder
if not is_own then return redis.error_reply('TURN lost') end -- [fence]
--- @include append_checks
local is_end = outcome ~= '-'
local line = message_count > 0
  and string.format('{"type":"message","first_seq":%d,"last_seq":%d}\n', total - message_count + 1, total) or ''
if is_end then line = line .. end_head .. (tonumber(flags) >= 8 and string.format('%d', total) or 'null') .. end_tail end
local fits = redis.call('STRLEN', live) == tonumber(offset) -- [same log]
-- Only writes follow, first one that a full Redis refuses.
if is_end then
  --- @include record_turn
  change('turn', string.format('%s %s %s %s %s', outcome, seen_generation, seen_holder, seen_name, seen_first_seq))
else
  redis.call('ZADD', turns, now + lease_ms, session) -- [lease]
end
if fits and line ~= '' then redis.call('SETRANGE', live, offset, line) end -- [log]
--- @include append_writes
redis.call('HDEL', state, 'doubt') -- [alive]
if is_end then
  redis.call('HDEL', state, 'stop') -- [stops no other]
  redis.call('ZREM', turns, session) -- [ended]
  redis.call('PEXPIREAT', turned, expires_ms) -- [turned expires]
  if not fits then redis.call('DEL', live) end -- [cut log]
end
redis.call('PEXPIREAT', live, math.min(expires_ms, is_end and now + keep_ms or expires_ms)) -- [kept]
--- @include push_messages
if line ~= '' and (fits or is_end) then redis.pcall('SPUBLISH', live, generation .. ' ' .. offset .. '\n' .. line) end -- [told]
return counters .. '@' .. (epoch or '') .. heavy

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
--   writes counters epoch owner zone ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes param: waiting last_intent last_result plan instruction title
-- REPLY counters@epoch, and ! if bodies should leave the window; if the append created the session, or was made before: counters first_seq last_seq created
--   duplicate epoch; if the window has not the length in the counters, without any write: counters epoch window_count
-- ERROR OWNER other · OVERTAKEN sending · PAST now_ms · CONFLICT last_seq cleared · FULL window_count · PARAMS params_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, active, overdue, originals, turned, leased, dead, evictions, fences, owners = unpack(KEYS)
local session, limits, request, token = unpack(ARGV, 1, 4)
local first_message = 5
--- @include append_request
if fresh ~= '1' then -- [made before]
  --- @include known_append
end
--- @include append_checks
-- Only writes follow.
if created then
  --- @include begin_session
end
--- @include append_writes
--- @include push_messages
if created then return {counters, 1, total, 1, 0, epoch} end
-- One string costs the server less than a table, in which it looks for seven types of reply.
return counters .. '@' .. (epoch or '') .. heavy

-- Parses the arguments of an append, and reads the state. Refuses a session of another owner or layout version, unreadable
-- counters, a time in the past, and a sending that a later one has overtaken.
-- READS limits request first_message state messages token
-- SETS kept_ms threshold token_limit fresh message_count set_count tokens expect now_ms pins first_set first_drop time now counters ids resent epoch created window_first_seq total window_tokens active_ms expires_ms marks uncounted hidden policy evicting overtaking sending
local kept_ms, threshold, token_limit = string.match(limits, '(%d+) (%d+) (%S+)')
local fresh, message_count, set_count, tokens, expect, now_ms, pins =
  string.match(request, '(%d) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+)')
message_count = tonumber(message_count)
local first_set, first_drop = first_message + message_count, first_message + message_count + 2 * set_count
--- @include now
--- @include timely
--- @include append_state
--- @include counters
local overtaking, sending = nil, (resent or fresh == '2' or fresh == '3') and string.sub(token, 11, 22)
--- @include overtaken

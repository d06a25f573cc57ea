-- Removes the newest messages, if the window is still as the caller saw it. Gaps take the places of the messages and one
-- more seq: so no seq is used twice, and an append that expects the earlier last seq is refused.
-- KEYS
--   messages
--   state
--   originals
--   vectors
--   active
--   evictions
-- ARGV
--   session
--   now_ms      - for the server's clock
--   kept_ms
--   token       as for an append; remembered among the appends
--   epoch
--   first_seq   of the window, as the caller saw it
--   last_seq    as the caller saw it
--   edited      as the caller saw it; - for none
--   newest      the newest element, as the caller read it
--   nonce       the new value of edited
--   left_tokens  of the window afterwards
--   left_uncounted  elements of the window that are pinned or gaps afterwards, formatted as in the counters
--   left_hidden  seqs of the window without an element afterwards, formatted as in the counters
--   kept_count  elements at the head of the window that stay; then the elements that follow them afterwards
-- FIELDS reads epoch counters ids_a ids_b ids_c ids_d repeated edited
--   writes counters ids_a ids_b ids_c ids_d repeated edited
-- REPLY 1 popped, 0 the window has changed; if made before, the reply of known_append
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals, vectors, active, evictions = unpack(KEYS)
local session, now_ms, kept_ms, token, epoch, first_seq, last_seq, edited, newest, nonce, left_tokens, left_uncounted,
  left_hidden, kept_count = unpack(ARGV, 1, 14)
local counters, seen_epoch, seen_edited, ids, repeated =
  unpack(redis.call('HMGET', state, 'counters', 'epoch', 'edited', 'ids_a', 'repeated'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters, ids = counters or '', ids or 'b'
--- @include counters
local created, fresh, message_count = false, '0', 1
--- @include known_append
if total ~= last_seq then return 0 end -- [appended since]
if (seen_edited or '-') ~= edited then return 0 end -- [edited since]
if window_first_seq ~= first_seq then return 0 end -- [the window]
if redis.call('LLEN', messages) ~= total - window_first_seq + 1 + (tonumber(hidden) or 0) then
  return redis.error_reply('CORRUPT window')
end
-- After a failover that lost appends, others may have taken their seqs; only the element differs then.
if redis.call('LINDEX', messages, -1) ~= newest then return 0 end -- [as it was read]
--- @include now
local noted = {}
local function change(field, value) noted[#noted + 1], noted[#noted + 2] = field, value end
-- Removal first: a script that has written may continue when memory is short. The messages last, as in append.lua.
redis.call('ZREM', evictions, session) -- [off the eviction queue]
--- @include remember_append
--- @include activity
counters = string.format('v1 %s %d %s %d %d%s%s',
  window_first_seq, total + 1, left_tokens, active_ms, expires_ms, left_uncounted, left_hidden) -- [new]
change('edited', nonce) -- [edited]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(noted))
if aged then for _, key in ipairs({state, messages, vectors, originals}) do redis.call('PEXPIREAT', key, expires_ms) end end -- [all expire]
if kept_count == '0' then redis.call('DEL', messages) else redis.call('LTRIM', messages, 0, kept_count - 1) end
for at = 15, #ARGV, 1000 do redis.call('RPUSH', messages, unpack(ARGV, at, math.min(at + 999, #ARGV))) end
if kept_count == '0' then redis.call('PEXPIREAT', messages, expires_ms) end -- [expiry]
return 1

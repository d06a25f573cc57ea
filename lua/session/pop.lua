-- Removes the newest messages, if the window is still as the caller saw it. Each message becomes a gap, and the pop adds
-- another gap at the end: so no seq is used twice, and an append that expects the earlier last seq is refused.
-- KEYS
--   messages
--   state
--   originals
--   vectors
--   active
--   evictions
-- ARGV
--   session
--   now_ms        - for the server's clock
--   kept_ms
--   window_limit  maximum of elements in the window, gaps included
--   token         as for an append; remembered among the appends
--   epoch
--   last_seq      as the caller saw it
--   edited        as the caller saw it; - for none
--   newest        the element of last_seq, as the caller read it
--   nonce         the new value of edited
--   tokens        of the messages
--   gap           an element without its stamp; then the seqs of the messages, oldest first
-- FIELDS reads epoch counters ids_a ids_b ids_c ids_d repeated edited
--   writes counters ids_a ids_b ids_c ids_d repeated edited
-- REPLY 1 popped, 0 the window has changed; if made before, the reply of known_append
-- ERROR FULL window_count · CORRUPT · LAYOUT version
local messages, state, originals, vectors, active, evictions = unpack(KEYS)
local session, now_ms, kept_ms, window_limit, token, epoch, last_seq, edited, newest, nonce,
  tokens, gap = unpack(ARGV, 1, 12)
local popped = {unpack(ARGV, 13)}
local counters, seen_epoch, seen_edited, ids, repeated =
  unpack(redis.call('HMGET', state, 'counters', 'epoch', 'edited', 'ids_a', 'repeated'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters, ids = counters or '', ids or 'b'
--- @include counters
local created, fresh, message_count = false, '0', 1
--- @include known_append
if total ~= last_seq then return 0 end -- [appended since]
if (seen_edited or '-') ~= edited then return 0 end -- [edited since]
if tonumber(popped[1]) < tonumber(window_first_seq) then return 0 end -- [still in the window]
local window_count = redis.call('LLEN', messages)
if window_count ~= total - window_first_seq + 1 then return redis.error_reply('CORRUPT window') end
-- After a failover that lost appends, others may have taken their seqs; only the element differs then.
if redis.call('LINDEX', messages, last_seq - window_first_seq) ~= newest then return 0 end -- [as it was read]
if window_count >= tonumber(window_limit) then return redis.error_reply('FULL ' .. window_count) end
--- @include now
local noted = {}
local function change(field, value) noted[#noted + 1], noted[#noted + 2] = field, value end
-- Removal first: a script that has written may continue when memory is short. The messages last, as in append.lua: after
-- a crash the first writes may run twice, and each gap is set at its place.
redis.call('ZREM', evictions, session) -- [off the eviction queue]
--- @include stamp
--- @include remember_append
--- @include activity
local gap_count = (tonumber(uncounted) or 0) + #popped + 1 -- [gaps]
local left_tokens = math.max(0, window_tokens - tokens) -- [tokens]
counters = string.format('v1 %s %d %d %d %d+%d', window_first_seq, total + 1, left_tokens, active_ms, expires_ms, gap_count)
change('edited', nonce) -- [edited]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(noted))
if aged then for _, key in ipairs({state, messages, vectors, originals}) do redis.call('PEXPIREAT', key, expires_ms) end end -- [all expire]
for _, seq in ipairs(popped) do redis.call('LSET', messages, seq - window_first_seq, gap .. stamp) end
redis.call('RPUSH', messages, gap .. stamp)
return 1

-- Replaces the newest elements of the window, and appends messages, if the window is still as the caller saw it. May also
-- replace the whole window by one that begins earlier, and cut summaries and originals to its first seq.
-- It takes one seq per message, or one without messages: no seq is used twice, and an append that expects the earlier last
-- seq is refused.
-- KEYS
--   messages
--   state
--   originals
--   vectors
--   active
--   overdue
--   evictions
-- ARGV
--   session
--   limits     as for an append
--   now_ms     - for the server's clock
--   token      as for an append; remembered among the appends
--   epoch
--   first_seq  of the window, as the caller saw it
--   last_seq   as the caller saw it
--   edited     as the caller saw it; - for none
--   newest     the newest element, as the caller read it; empty for an empty window
--   nonce      the new value of edited
--   pins       as for an append; - for no change
--   committed  as the caller saw it; - for none
--   next_seq   the first seq of the window afterwards
--   left       of the window afterwards, as in the counters: tokens, uncounted and hidden
--   block      number of the first block of originals that is removed; - for none
--   sizes      numbers of elements that stay, elements that follow, new messages, and messages that count afterwards
--   from_seq   the first seq whose message goes, with its body
--   more       numbers of fields to set and to drop; then elements, unstamped messages, fields, and the rest of the block
-- FIELDS reads epoch counters ids_a ids_b ids_c ids_d ids: others resent edited queued pins large_bytes committed
--   writes counters ids_a ids_b ids_c ids_d ids: others resent edited removed queued pins large_bytes summaries_count with_originals sketch committed pinned: summary:
-- REPLY counters@epoch; if made before, the reply of known_append; 0 if the window has changed
-- ERROR OVERTAKEN sending · FULL window_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, originals, vectors, active, overdue, evictions = unpack(KEYS)
local session, limits, now_ms, token, epoch, first_seq, last_seq, edited, newest, nonce, pins, committed,
  next_seq, left, block, sizes, from_seq, more = unpack(ARGV, 1, 18)
local kept_ms, threshold, token_limit, recent_limit, window_limit =
  string.match(limits, '(%d+) (%d+) (%S+) (%d+) (%d+)')
local left_tokens, left_elements = string.match(left, '^(%d+)(.*)$')
local kept_count, element_count, message_count, counted_count = string.match(sizes, '(%d+) (%d+) (%d+) (%d+)')
local set_count, drop_count = string.match(more, '(%d+) (%d+)')
local first_message, first_set = 19 + element_count, 19 + element_count + message_count
local first_drop, first_original = first_set + 2 * set_count, first_set + 2 * set_count + drop_count
local counters, seen_epoch, seen_edited, ids, resent, seen_committed = unpack(redis.call('HMGET', state, 'counters', 'epoch', 'edited', 'ids_a', 'resent', 'committed'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters, ids = counters or '', ids or 'b'
--- @include counters
local created, fresh, overtaking, sending = false, '3', nil, string.sub(token, 11, 22)
--- @include overtaken
--- @include known_append
if total ~= last_seq then return 0 end -- [appended since]
if (seen_edited or '-') ~= edited then return 0 end -- [edited since]
if window_first_seq ~= first_seq then return 0 end -- [the window]
if drop_count ~= '0' and (seen_committed or '-') ~= committed then return 0 end -- [the summaries]
-- HLEN makes the server refuse originals of a foreign type before the first write.
local length = redis.call('LLEN', messages), redis.call('HLEN', originals)
if length ~= total - window_first_seq + 1 + (tonumber(hidden) or 0) then return redis.error_reply('CORRUPT window') end
-- After a failover that lost appends, others may have taken their seqs; only the element differs then.
if (redis.call('LINDEX', messages, -1) or '') ~= newest then return 0 end -- [as it was read]
local fields = {unpack(ARGV, first_set, first_drop - 1)}
local function change(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end
if pins ~= '-' then
  --- @include pins
end
local window_count, window_tokens = tonumber(counted_count), left_tokens
--- @include overdue
if is_overdue and window_count > math.max(length - (tonumber(uncounted) or 0), window_limit) then -- [full]
  return redis.error_reply('FULL ' .. length - (tonumber(uncounted) or 0))
end
--- @include rewritten_large
--- @include now
--- @include stamp
-- Removal first: a script that has written may continue when memory is short. The messages last, as in append.lua.
redis.call('ZREM', evictions, evicting ~= '' and session or '') -- [off the eviction queue]
local elements, message_count = {}, math.max(1, message_count)
for at = 19, first_set - 1 do elements[at - 18] = at < first_message and ARGV[at] or ARGV[at] .. stamp end
--- @include remember_append
--- @include policy
--- @include make_overdue
--- @include activity
counters = string.format('v1 %s %d %s %d %d%s%s',
  next_seq, total + message_count, left_tokens, active_ms, expires_ms, left_elements, policy) -- [new]
change('edited', nonce) -- [edited]
--- @include cut_originals
--- @include cut_bodies
if first_drop < first_original then redis.call('HDEL', state, unpack(ARGV, first_drop, first_original - 1)) end -- [cut]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(fields))
if aged then for _, key in ipairs({state, messages, vectors, originals}) do redis.call('PEXPIREAT', key, expires_ms) end end -- [all expire]
if kept_count == '0' then redis.call('DEL', messages) else redis.call('LTRIM', messages, 0, kept_count - 1) end
for at = 1, #elements, 1000 do redis.call('RPUSH', messages, unpack(elements, at, math.min(at + 999, #elements))) end
if kept_count == '0' then redis.call('PEXPIREAT', messages, expires_ms) end -- [expiry]
return counters .. '@' .. epoch

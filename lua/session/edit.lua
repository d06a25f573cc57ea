-- Makes one edit of a session (prune, archive, pop, rewrite, replace, unpin, forget, or a move of bodies) if the session
-- is as the caller read it. The lists after `starts` are in their order: elements to replace (place, element as read, new
-- element or nothing, field of the originals that keeps the old one or nothing), blocks of originals as read (number,
-- block), elements to push, messages to push, which get their stamp here, fields of the originals to set (name, value),
-- fields of the originals that go, fields of the state to set (name, value), and fields of the state that go.
-- KEYS
--   messages
--   state
--   originals
--   turned
--   live
--   active
--   overdue
--   evictions
--   turns
-- ARGV
--   session
--   now_ms     - for the server's clock
--   limits     as for an append; - if the edit is no use of the session, so that its expiry and its eviction stay
--   token      as for an append; remembered among the appends; empty if a repeated edit need not be recognised
--   epoch
--   first_seq  of the window, as read
--   last_seq   as read; * for any
--   edited     as read; - for none, * for any
--   committed  as read; - for none, * for any
--   place      of one more element, or a field of the state; - for neither
--   seen       this element or value, as read; empty for none
--   nonce      the new value of edited; - leaves it
--   pins       as for an append; - for no change
--   next_seq   the first seq of the window afterwards
--   changes    changes of the counters: seqs, tokens, uncounted elements, hidden seqs, bytes of large messages
--   block      number of the first block of originals that goes; - for none
--   bodies     the first seq of which the body stays, and the first one behind; - if all stay
--   kept       places of the first and the last element that stay in the window; - if all stay
--   log        of the last turn: - keeps it, ended removes it unless its turn runs, lost removes it and ends its turn
--   starts     numbers of the first argument of each list but the first
-- FIELDS reads epoch counters ids_a ids_b ids_c ids_d ids: others resent edited queued pins large_bytes committed pinned: turn
--   writes counters ids_a ids_b ids_c ids_d ids: others resent queued edited pruned removed pins large_bytes summaries_count with_originals sketch committed title pinned: summary: turn stop doubt
-- REPLY counters@epoch; if made before, the reply of known_append; 0 if the session has changed
-- ERROR OVERTAKEN sending · FULL window_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, originals, turned, live, active, overdue, evictions, turns = unpack(KEYS)
local session, now_ms, limits, token, epoch, first_seq, last_seq, edited, committed, place, seen, nonce, pins, next_seq,
  changes, block, bodies, kept, log, starts = unpack(ARGV, 1, 20)
local more_seqs, more_tokens, more_uncounted, more_hidden, more_large = string.match(changes, '(%S+) (%S+) (%S+) (%S+) (%S+)')
local first_replaced = 21
local first_block, first_element, first_message, first_original, first_gone, first_set, first_dropped =
  string.match(starts, '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
first_block, first_element, first_message = tonumber(first_block), tonumber(first_element), tonumber(first_message)
first_original, first_gone, first_dropped = tonumber(first_original), tonumber(first_gone), tonumber(first_dropped)
local counters, seen_epoch, ids, resent, seen_edited, seen_committed, large = unpack(redis.call(
  'HMGET', state, 'counters', 'epoch', 'ids_a', 'resent', 'edited', 'committed', 'large_bytes'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters, ids = counters or '', ids or 'b'
--- @include counters
--- @include now
local created, fresh, message_count, overtaking, sending = false, '3', more_seqs, nil, token ~= '' and string.sub(token, 11, 22)
--- @include overtaken
if sending then
  --- @include known_append
end
if last_seq ~= '*' and total ~= last_seq then return 0 end -- [appended since]
if window_first_seq ~= first_seq then return 0 end -- [the window]
if edited ~= '*' and (seen_edited or '-') ~= edited then return 0 end -- [edited since]
if committed ~= '*' and (seen_committed or '-') ~= committed then return 0 end -- [the summaries]
-- HLEN makes the server refuse originals of a foreign type before the first write.
local length = redis.call('LLEN', messages), redis.call('HLEN', originals)
if length ~= total - window_first_seq + 1 + (tonumber(hidden) or 0) then return redis.error_reply('CORRUPT window') end
-- After a failover that lost writes, other messages may have these seqs, or another block this number.
local found = tonumber(place) and redis.call('LINDEX', messages, place) or place ~= '-' and redis.call('HGET', state, place)
if (found or '') ~= seen then return 0 end -- [as it was read]
for at = first_replaced, first_block - 1, 4 do
  if redis.call('LINDEX', messages, ARGV[at]) ~= ARGV[at + 1] then return 0 end -- [what it replaces]
end
for at = first_block, first_element - 1, 2 do
  if redis.call('HGET', originals, ARGV[at]) ~= ARGV[at + 1] then return 0 end -- [its block]
end
local fields = {unpack(ARGV, first_set, first_dropped - 1)}
local function change(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end
if pins ~= '-' then
  --- @include pins
end
local count_before, window_tokens = length - (tonumber(uncounted) or 0), math.max(0, window_tokens + more_tokens) -- [tokens]
local left_uncounted, left_hidden = (tonumber(uncounted) or 0) + more_uncounted, (tonumber(hidden) or 0) + more_hidden -- [what stays]
local window_count = total + more_seqs - next_seq + 1 + left_hidden - left_uncounted -- [counted]
uncounted = left_uncounted > 0 and string.format('+%d', left_uncounted) or '' -- [uncounted]
hidden = left_hidden < 0 and string.format('%d', left_hidden) or '' -- [hidden]
if limits ~= '-' then
  local kept_ms, threshold, token_limit, recent_limit, window_limit = string.match(limits, '(%d+) (%d+) (%S+) (%d+) (%d+)')
  if window_count > math.max(count_before, window_limit) then return redis.error_reply('FULL ' .. count_before) end -- [full]
  --- @include overdue
  redis.call('ZREM', evictions, evicting ~= '' and session or '') -- [off the eviction queue]
  --- @include policy
  --- @include make_overdue
  --- @include activity
  if aged then for _, key in ipairs({state, messages, turned, originals}) do redis.call('PEXPIREAT', key, expires_ms) end end -- [all expire]
  evicting = '' -- [not chosen]
end
-- Removal first: a script that has written may continue when memory is short. The messages last: if a crash cuts the log
-- within these writes, all others may safely run twice.
--- @include drop_log
if first_dropped <= #ARGV then redis.call('HDEL', state, unpack(ARGV, first_dropped)) end -- [dropped]
if block == '0' and bodies == '-' then
  redis.call('DEL', originals) -- [originals go]
elseif block ~= '-' or bodies ~= '-' then
  local first_body, end_body = string.match(bodies, '(%d+) (%d+)')
  local end_block, from_seq, to_seq = tonumber(block) or math.huge, tonumber(first_body or 0), tonumber(end_body or math.huge)
  for _, name in ipairs(redis.call('HKEYS', originals)) do
    local kind, number = string.match(name, '^([bsv]?)(%d+)$')
    number = tonumber(number or -1)
    local goes = number >= end_block -- [cut originals]
    if kind == 'b' then goes = number < from_seq or number >= to_seq end -- [bodies go]
    if goes then redis.call('HDEL', originals, name) end
  end
end
for at = first_original, first_gone - 1, 500 do
  -- A growing block is set as a whole. If a crash cuts the script here, readers skip the messages that are in it twice.
  redis.call('HSET', originals, unpack(ARGV, at, math.min(at + 499, first_gone - 1))) -- [originals]
end
for at = first_replaced, first_block - 1, 4 do
  if ARGV[at + 3] ~= '' then
    redis.call('HSET', originals, ARGV[at + 3], ARGV[at + 1]) -- [its body]
    policy = '~b' .. string.gsub(policy, '^~b?', '') -- [bodies]
  end
end
for at = first_gone, first_set - 1 do redis.call('HDEL', originals, ARGV[at]) end -- [original goes]
if first_block > first_replaced or first_original < first_gone then redis.call('PEXPIREAT', originals, expires_ms) end -- [originals expire]
if sending then
  --- @include remember_append
end
counters = string.format('v1 %s %d %d %d %d%s%s%s%s',
  next_seq, total + more_seqs, window_tokens, active_ms, expires_ms, uncounted, hidden, policy, evicting) -- [new]
if nonce ~= '-' then change('edited', nonce) end -- [edited]
if more_large ~= '0' then change('large_bytes', string.format('%d', math.max(0, (tonumber(large or 0) or 0) + more_large))) end -- [large]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(fields))
for at = first_replaced, first_block - 1, 4 do
  redis.call('LSET', messages, ARGV[at], ARGV[at + 2] == '' and nonce or ARGV[at + 2]) -- [in the window]
end
if first_block > first_replaced and tonumber(more_hidden) < 0 then redis.call('LREM', messages, 0, nonce) end -- [no two gaps]
if kept ~= '-' then redis.call('LTRIM', messages, string.match(kept, '(%S+) (%S+)')) end -- [messages go]
if first_element < first_original then
  --- @include stamp
  local elements = {}
  for at = first_element, first_original - 1 do elements[#elements + 1] = at < first_message and ARGV[at] or ARGV[at] .. stamp end
  for at = 1, #elements, 1000 do redis.call('RPUSH', messages, unpack(elements, at, math.min(at + 999, #elements))) end
  redis.call('PEXPIREAT', messages, expires_ms) -- [expiry]
end
return counters .. '@' .. epoch

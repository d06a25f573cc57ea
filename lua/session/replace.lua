-- Replaces a message of the window, or a pinned message, if it has not changed since it was read. Also pins and unpins,
-- because the pin is a mark in the element.
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
--   now_ms        - for the server's clock
--   limits        as for an append
--   token         as for an append; remembered among the appends
--   epoch
--   first_seq     of the window, as the caller saw it
--   place         of the message in the window, - if it has left it
--   nonce         the new value of edited
--   old           the element as read; if it has left the window, the value of its field
--   new           the new element or value
--   more_tokens   change of the counted tokens in the window, negative for fewer
--   more_uncounted  change of the uncounted elements: -1, 0 or 1
--   pins          as for an append; - for no change
--   last_seq      as the caller saw it; - for any
--   pinned_field  the field that holds it, if it has left the window; else -
--   new_field     the field that holds it afterwards; - for none
--   block         number of the block of originals that holds it; - for none
--   old_block     the block as read
--   new_block     the block with the new message
--   new_signature  of new_block
--   gone          the fields of the originals that go: with the old block, or the message's body; with blanks between them
-- FIELDS reads epoch counters ids_a ids_b ids_c ids_d ids: others resent queued pins large_bytes pinned:
--   writes counters ids_a ids_b ids_c ids_d ids: others resent queued edited pins large_bytes pinned:
-- REPLY 1 replaced, 0 the message has changed, or is gone; if made before, the reply of known_append
-- ERROR OVERTAKEN sending · FULL window_count · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, originals, vectors, active, overdue, evictions = unpack(KEYS)
local session, now_ms, limits, token, epoch, first_seq, place, nonce, old, new, more_tokens, more_uncounted, pins, last_seq,
  pinned_field, new_field, block, old_block, new_block, new_signature, gone = unpack(ARGV)
local kept_ms, threshold, token_limit, recent_limit, window_limit =
  string.match(limits, '(%d+) (%d+) (%S+) (%d+) (%d+)')
local counters, seen_epoch, ids, resent = unpack(redis.call('HMGET', state, 'counters', 'epoch', 'ids_a', 'resent'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters, ids = counters or '', ids or 'b'
--- @include counters
local created, fresh, message_count, overtaking, sending = false, '0', 0, nil, string.sub(token, 11, 22)
--- @include overtaken
--- @include known_append
if last_seq ~= '-' and last_seq ~= total then return 0 end -- [appended since]
-- Messages that left the window have moved all places. A failover can lose the commit that moved it, so that it is back.
if window_first_seq ~= first_seq then return 0 end -- [where it was read]
local is_inside, noted = place ~= '-', {}
local found = is_inside and redis.call('LINDEX', messages, place) or not is_inside and redis.call('HGET', state, pinned_field)
if found ~= old then return 0 end -- [as it was read]
if block ~= '-' and redis.call('HGET', originals, block) ~= old_block then return 0 end -- [its block]
local function change(field, value) noted[#noted + 1], noted[#noted + 2] = field, value end
if pins ~= '-' then
  --- @include pins
end
-- A message outside the window does not count in it.
if not is_inside then more_tokens, more_uncounted = 0, 0 end -- [left the window]
local uncounted_count = (tonumber(uncounted) or 0) + more_uncounted
local window_count = total - window_first_seq + 1 + (tonumber(hidden) or 0) - uncounted_count -- [hidden]
local window_tokens = math.max(0, window_tokens + more_tokens) -- [tokens]
--- @include overdue
if tonumber(more_uncounted) < 0 and window_count > tonumber(window_limit) then
  return redis.error_reply('FULL ' .. window_count - 1)
end
if is_inside then
  --- @include replaced_large
end
--- @include now
redis.call('ZREM', evictions, evicting ~= '' and session or '') -- [off the eviction queue]
--- @include remember_append
--- @include policy
--- @include make_overdue
--- @include activity
counters = string.format('v1 %s %s %d %d %d', window_first_seq, total, window_tokens, active_ms, expires_ms)
if uncounted_count > 0 then counters = string.format('%s+%d%s', counters, uncounted_count, hidden) end -- [uncounted]
counters = counters .. policy -- [policy]
change('edited', nonce) -- [edited]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(noted))
if aged then for _, key in ipairs({state, messages, vectors, originals}) do redis.call('PEXPIREAT', key, expires_ms) end end -- [all expire]
if block ~= '-' then
  --- @include drop_vectors
  redis.call('HSET', originals, block, new_block, 's' .. block, new_signature) -- [its original]
end
-- After the vector set, which returns its vectors to their fields.
--- @include drop_fields
if is_inside then
  redis.call('LSET', messages, place, new) -- [in the window]
else
  if new_field ~= pinned_field then redis.call('HDEL', state, pinned_field) end
  if new_field ~= '-' then redis.call('HSET', state, new_field, new) end
end
return 1

-- Moves the oldest elements of the window into the originals, without a summary, if the window is still as the caller saw
-- it.
-- KEYS
--   messages
--   state
--   originals
--   vectors
-- ARGV
--   token       as for an append; remembered among the appends
--   epoch
--   first_seq   of the window, as the caller saw it
--   edited      as the caller saw it; - for none
--   next_seq    first_seq afterwards
--   count       elements that leave the head of the window
--   newest      the last of these elements, as the caller read it
--   uncounted_count  how many of them are pinned or gaps
--   tokens      of the others
--   merged      number of the first of four blocks of originals that become one; - for none
--   moved_count length of the next part: the field for pinned messages that leave, then their places; then fields and values of the originals
-- FIELDS reads epoch counters ids_a ids_b ids_c ids_d ids: others resent edited with_originals large_bytes
--   writes counters ids_a ids_b ids_c ids_d ids: others resent with_originals large_bytes pinned:
-- REPLY 1 archived, 0 the window has changed; if made before, the reply of known_append
-- ERROR OVERTAKEN sending · CORRUPT · LAYOUT version
local messages, state, originals, vectors = unpack(KEYS)
local token, epoch, first_seq, edited, next_seq, count, newest, uncounted_count, tokens, merged, moved_count = unpack(ARGV, 1, 11)
local first_kept = 12 + moved_count
local moved = {unpack(ARGV, 12, first_kept - 1)}
local counters, seen_epoch, seen_edited, ids, resent, with_originals = unpack(redis.call('HMGET', state, 'counters', 'epoch', 'edited', 'ids_a', 'resent', 'with_originals'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters, ids = counters or '', ids or 'b'
--- @include counters
local created, fresh, message_count, overtaking, sending, now = false, '0', 0, nil, string.sub(token, 11, 22), redis.call('TIME')[1] * 1000
--- @include overtaken
--- @include known_append
if window_first_seq ~= first_seq then return 0 end -- [the window]
if (seen_edited or '-') ~= edited then return 0 end -- [edited since]
-- After a failover that lost appends, others may have taken their seqs; only the element differs then.
if redis.call('LINDEX', messages, count - 1) ~= newest then return 0 end -- [as it was read]
-- HLEN makes the server refuse originals of a foreign type before the first write.
redis.call('HLEN', originals)
--- @include left_large
local left_tokens = math.max(0, window_tokens - tokens) -- [tokens]
local noted = {}
local function change(field, value) noted[#noted + 1], noted[#noted + 2] = field, value end
-- Those of an earlier epoch, or those that would be followed by a gap.
if not with_originals then -- [old originals]
  local next_kept = first_seq
  --- @include drop_originals
end
--- @include remember_append
for at = first_kept, #ARGV, 500 do
  -- A growing block is set as a whole. If a crash cuts the script here, readers skip the messages that are in it twice.
  redis.call('HSET', originals, unpack(ARGV, at, math.min(at + 499, #ARGV))) -- [originals]
end
--- @include merge_blocks
redis.call('PEXPIREAT', originals, expires_ms) -- [expiry]
--- @include move_pinned
--- @include left_uncounted
counters = string.format('v1 %s %s %d %s %s%s%s%s%s',
  next_seq, total, left_tokens, active_ms, expires_ms, uncounted, hidden, policy, evicting) -- [chosen]
if has_large then change('large_bytes', large_bytes) end
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, 'with_originals', 1, unpack(noted))
-- The messages last, as in append.lua: a second run would lose messages.
redis.call('LTRIM', messages, count, -1) -- [messages go]
return 1

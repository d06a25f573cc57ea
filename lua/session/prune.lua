-- Drops the oldest messages of the window except pinned ones, and all originals but the bodies of the others, if the window is still as the caller saw
-- it.
-- KEYS
--   messages
--   state
--   originals
--   vectors
-- ARGV
--   epoch
--   first_seq   of the window, as the caller saw it
--   edited      as the caller saw it; - for none
--   next_seq    after the prune
--   count       elements to drop
--   newest      the last of these elements, as the caller read it
--   uncounted_count  how many of them are pinned or gaps
--   tokens      of the others
--   nonce       identifies this prune when resent; then the field for pinned messages that leave, and their places
-- FIELDS reads epoch counters pruned edited large_bytes
--   writes counters pruned large_bytes pinned:
-- REPLY 1 dropped, 0 the window has changed
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals, vectors = unpack(KEYS)
local epoch, first_seq, edited, next_seq, count, newest, uncounted_count, tokens, nonce = unpack(ARGV, 1, 9)
local moved = {unpack(ARGV, 10)}
local seen_epoch, counters, pruned, seen_edited =
  unpack(redis.call('HMGET', state, 'epoch', 'counters', 'pruned', 'edited'))
if pruned == nonce then return 1 end -- [made before]
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters = counters or ''
--- @include counters
if window_first_seq ~= first_seq then return 0 end -- [the window]
if (seen_edited or '-') ~= edited then return 0 end -- [edited since]
-- After a failover that lost appends, others may have taken their seqs; only the element differs then.
if redis.call('LINDEX', messages, count - 1) ~= newest then return 0 end -- [as it was read]
--- @include left_large
local left_tokens = math.max(0, window_tokens - tokens) -- [tokens]
-- Removal first: a script that has written may continue when memory is short. The messages last: if a crash cuts the log
-- within these writes, all others may safely run twice.
local next_kept = next_seq
--- @include drop_originals
--- @include move_pinned
--- @include left_uncounted
counters = string.format('v1 %s %s %d %s %s%s%s%s%s',
  next_seq, total, left_tokens, active_ms, expires_ms, uncounted, hidden, policy, evicting) -- [chosen]
redis.call('HSET', state, 'counters', counters, 'pruned', nonce,
  has_large and 'large_bytes' or 'pruned', has_large and large_bytes or nonce)
redis.call('LTRIM', messages, count, -1)
return 1

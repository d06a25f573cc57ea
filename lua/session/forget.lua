-- Removes single messages wherever they are: from the window, from the pinned messages and from the originals, and
-- replaces or removes the summaries that cover them; if the session is as the caller saw it, appends aside.
-- A gap takes the place of a message in the window. This is no use of the session: its expiry stays.
-- After sizes follow places in the window (place, element as read, new element or nothing), blocks of originals (number,
-- block as read, new block and signature or nothing, fields of the originals that go), fields of the state to set (name, value) and fields to drop.
-- KEYS
--   messages
--   state
--   originals
--   vectors
-- ARGV
--   token      as for an append; remembered among the appends
--   epoch
--   first_seq  of the window, as the caller saw it
--   edited     as the caller saw it; - for none
--   committed  as the caller saw it; - for none
--   nonce      the new value of edited
--   pins       as for an append; - for no change
--   more       changes of the counters: tokens, uncounted elements and hidden seqs
--   gone       fields of the originals that go, the bodies of messages, with blanks between them
--   sizes      numbers of places, blocks and fields to set, in one argument; then these, and the fields to drop
-- FIELDS reads epoch counters ids_a ids_b ids_c ids_d ids: others resent edited pins large_bytes committed
--   writes counters ids_a ids_b ids_c ids_d ids: others resent edited removed pins large_bytes summaries_count sketch committed pinned: summary:
-- REPLY 1 removed, 0 the session has changed; if made before, the reply of known_append
-- ERROR OVERTAKEN sending · PINS count bytes count_limit bytes_limit · CORRUPT · LAYOUT version
local messages, state, originals, vectors = unpack(KEYS)
local token, epoch, first_seq, edited, committed, nonce, pins, more, gone, sizes = unpack(ARGV, 1, 10)
local more_tokens, more_uncounted, more_hidden = string.match(more, '(%S+) (%S+) (%S+)')
local place_count, block_count, set_count = string.match(sizes, '(%d+) (%d+) (%d+)')
local first_block, first_set = 11 + 3 * place_count, 11 + 3 * place_count + 5 * block_count
local counters, seen_epoch, seen_edited, ids, resent, seen_committed = unpack(redis.call('HMGET', state, 'counters', 'epoch', 'edited', 'ids_a', 'resent', 'committed'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters, ids = counters or '', ids or 'b'
--- @include counters
local created, fresh, message_count, overtaking, sending, now = false, '0', 0, nil, string.sub(token, 11, 22), redis.call('TIME')[1] * 1000
--- @include overtaken
--- @include known_append
if window_first_seq ~= first_seq then return 0 end -- [the window]
if (seen_edited or '-') ~= edited then return 0 end -- [edited since]
if (seen_committed or '-') ~= committed then return 0 end -- [the summaries]
-- HLEN makes the server refuse originals of a foreign type before the first write.
local length = redis.call('LLEN', messages), redis.call('HLEN', originals)
if length ~= total - window_first_seq + 1 + (tonumber(hidden) or 0) then return redis.error_reply('CORRUPT window') end
-- A failover can lose the last writes, so that other messages have these places, or another block this number.
for at = 11, first_block - 1, 3 do
  if redis.call('LINDEX', messages, ARGV[at]) ~= ARGV[at + 1] then return 0 end -- [as it was read]
end
for at = first_block, first_set - 1, 5 do
  if redis.call('HGET', originals, ARGV[at]) ~= ARGV[at + 1] then return 0 end -- [its block]
end
local sets, drops = {unpack(ARGV, first_set, first_set + 2 * set_count - 1)}, {unpack(ARGV, first_set + 2 * set_count)}
local function change(field, value) sets[#sets + 1], sets[#sets + 2] = field, value end
if pins ~= '-' then
  --- @include pins
end
--- @include forgotten_large
-- Removal first: a script that has written may continue when memory is short. The word counts of the summaries go whole.
redis.call('HDEL', state, 'sketch', unpack(drops)) -- [dropped]
--- @include drop_fields
if block_count ~= '0' then
  --- @include drop_vectors
end
for at = first_block, first_set - 1, 5 do
  local block, _, new_block, new_signature, gone = unpack(ARGV, at, at + 4)
  for name in string.gmatch(gone, '%S+') do redis.call('HDEL', originals, name) end -- [its vectors]
  if new_block == '' then
    redis.call('HDEL', originals, block, 's' .. block) -- [its original]
  else
    redis.call('HSET', originals, block, new_block, 's' .. block, new_signature) -- [rest of the block]
  end
end
--- @include remember_append
local left_tokens, left_count = math.max(0, window_tokens + more_tokens), (tonumber(uncounted) or 0) + more_uncounted -- [tokens]
local left_hidden = (tonumber(hidden) or 0) + more_hidden -- [hidden]
uncounted, hidden = left_count > 0 and '+' .. left_count or '', left_hidden < 0 and left_hidden or '' -- [uncounted]
counters = string.format('v1 %s %s %d %s %s%s%s%s%s',
  window_first_seq, total, left_tokens, active_ms, expires_ms, uncounted, hidden, policy, evicting)
change('edited', nonce) -- [edited]
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(sets))
for at = 11, first_block - 1, 3 do
  local place, _, new = unpack(ARGV, at, at + 2)
  redis.call('LSET', messages, place, new == '' and nonce or new) -- [in the window]
end
if tonumber(more_hidden) < 0 then redis.call('LREM', messages, 0, nonce) end -- [no two gaps]
return 1

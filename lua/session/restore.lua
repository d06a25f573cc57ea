-- Restores a session from quarantine, as the caller has read and repaired it; refused if a session with its id exists.
-- Without faults its keys are moved; with faults the readable parts are copied, and the quarantine stays unchanged.
-- The session is overdue at once, so that a worker checks whether it needs a summary.
-- KEYS
--   messages
--   state
--   originals
--   vectors
--   quarantine_messages
--   quarantine_state
--   quarantine_originals
--   active
--   overdue
--   leased
--   dead
--   evictions
--   owners
--   fences
-- ARGV
--   session
--   now_ms       - for the server's clock
--   kept_ms
--   epoch        the old epoch, or - for a new one
--   nonce        of the new epoch
--   first_seq
--   tokens       of the restored messages that are neither pinned nor gaps
--   uncounted    number of pinned messages and gaps, formatted as in the counters: +n; empty for none
--   hidden       number of seqs without an element, formatted as in the counters: -h; empty for none
--   policy       as in the counters; empty for none
--   seen_count   messages that the caller has seen in quarantine
--   moves        1 restores everything, 0 leaves messages out
--   field_count  number of fields of the state, which follow with values; then places of messages to leave out, from 0
-- FIELDS reads epoch owner
--   writes epoch counters queued
-- REPLY 1 restored now or before, 0 nothing in quarantine
-- ERROR LIVE · CHANGED message_count
local messages, state, originals, vectors, quarantine_messages, quarantine_state, quarantine_originals,
  active, overdue, leased, dead, evictions, owners, fences = unpack(KEYS)
local session, now_ms, kept_ms, epoch, nonce, first_seq, tokens, uncounted, hidden, policy, seen_count,
  moves, field_count = unpack(ARGV, 1, 13)
local first_field, first_left_out = 14, 14 + 2 * field_count
--- @include now
if redis.call('EXISTS', messages, state, originals) > 0 then
  local seen_epoch = redis.call('HGET', state, 'epoch') or ''
  if seen_epoch == epoch or string.sub(seen_epoch, -#nonce) == nonce then return 1 end
  return redis.error_reply('LIVE session')
end
if redis.call('EXISTS', quarantine_messages, quarantine_state, quarantine_originals) == 0 then return 0 end
local is_list = redis.call('TYPE', quarantine_messages).ok == 'list'
local count = is_list and redis.call('LLEN', quarantine_messages) or 0
if count ~= tonumber(seen_count) then return redis.error_reply('CHANGED ' .. count) end
local left_out, kept = {}, {}
for at = first_left_out, #ARGV do left_out[ARGV[at] + 1] = true end
if is_list and moves == '0' then
  for place, element in ipairs(redis.call('LRANGE', quarantine_messages, 0, -1)) do
    if not left_out[place] then kept[#kept + 1] = element end
  end
  count = #kept
end
-- Only writes follow, the messages last.
--- @include unindex
--- @include policy
if epoch == '-' then epoch = redis.call('INCR', fences) .. '-' .. nonce end
local expires_ms = now + kept_ms
local total = first_seq + count - 1 - (tonumber(hidden) or 0) -- [hidden]
local counters = string.format('v1 %s %d %s %d %d%s%s%s', first_seq, total, tokens, now, expires_ms, uncounted, hidden,
  policy)
redis.call('HSET', state, 'epoch', epoch, 'counters', counters, 'queued', 'overdue')
-- In parts: Lua passes at most 8,000 arguments to a command.
for at = first_field, first_left_out - 1, 1000 do
  local restored = {unpack(ARGV, at, math.min(at + 1000, first_left_out) - 1)}
  redis.call('HSET', state, unpack(restored))
end
redis.call('ZADD', active, sign * now, session)
local owner = redis.call('HGET', state, 'owner')
--- @include owned
--- @include watched
redis.call('ZADD', overdue, now, session)
redis.call('PEXPIREAT', state, expires_ms)
redis.call('DEL', vectors)
if moves == '1' then
  -- Renamed, not added: after a crash these writes may run twice.
  if is_list then redis.call('RENAME', quarantine_messages, messages) end
  if redis.call('EXISTS', quarantine_originals) > 0 then redis.call('RENAME', quarantine_originals, originals) end
  redis.call('DEL', quarantine_state)
end
if #kept > 0 then
  -- Removes what a first run added. SET ensures that the log contains the DEL, which a missing key would not.
  redis.call('SET', messages, '')
  redis.call('DEL', messages)
end
for _, element in ipairs(kept) do redis.call('RPUSH', messages, element) end
for _, key in ipairs({messages, originals}) do redis.call('PEXPIREAT', key, expires_ms) end -- [all expire]
return 1

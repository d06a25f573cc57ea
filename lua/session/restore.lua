-- Brings a session back from quarantine, as the caller has read and mended it there: refused if a session of its name
-- lives. Without faults its keys are moved; else what could be read is copied, and the quarantine stays as it is.
-- It is overdue at once: a worker sees whether it has work.
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
--   fences
-- ARGV
--   session
--   now_ms       - for the server's clock
--   kept_ms
--   epoch        that it had, or - for a new one
--   nonce        of the new one
--   first_seq
--   tokens       of the messages that come back and count
--   uncounted    how many of them are pinned or gaps, as the counters say it: +n; empty for none
--   seen_count   messages that the caller has seen there
--   moves        1: all of it comes back, 0: what follows is left out
--   field_count  then so many fields and values of the state, then places of messages to leave out, from 0
-- FIELDS reads epoch
--   writes epoch counters queued
-- REPLY 1 restored, or was before; 0 nothing is in quarantine there
-- ERROR LIVE · CHANGED message_count
local messages, state, originals, vectors, quarantine_messages, quarantine_state, quarantine_originals,
  active, overdue, leased, dead, evictions, fences = unpack(KEYS)
local session, now_ms, kept_ms, epoch, nonce, first_seq, tokens, uncounted, seen_count,
  moves, field_count = unpack(ARGV, 1, 11)
local first_field, first_left_out = 12, 12 + 2 * field_count
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
-- From here on only writes, the messages last.
--- @include unindex
if epoch == '-' then epoch = redis.call('INCR', fences) .. '-' .. nonce end
local expires_ms
--- @include expiry
local counters = string.format('v1 %s %d %s %d %d%s', first_seq, first_seq + count - 1, tokens, now, expires_ms, uncounted)
redis.call('HSET', state, 'epoch', epoch, 'counters', counters, 'queued', 'overdue')
-- In parts: Lua gives a command 8,000 words at most.
for at = first_field, first_left_out - 1, 1000 do
  local restored = {unpack(ARGV, at, math.min(at + 1000, first_left_out) - 1)}
  redis.call('HSET', state, unpack(restored))
end
redis.call('ZADD', active, now, session)
redis.call('ZADD', overdue, now, session)
redis.call('PEXPIREAT', state, expires_ms)
redis.call('DEL', vectors)
if moves == '1' then
  -- Renamed, not added: a log that a crash has cut within this may carry it out twice.
  if is_list then redis.call('RENAME', quarantine_messages, messages) end
  if redis.call('EXISTS', quarantine_originals) > 0 then redis.call('RENAME', quarantine_originals, originals) end
  redis.call('DEL', quarantine_state)
end
if #kept > 0 then
  -- Likewise: whatever was added to it the first time is gone by this. DEL alone leaves nothing in the log.
  redis.call('SET', messages, '')
  redis.call('DEL', messages)
end
for _, element in ipairs(kept) do redis.call('RPUSH', messages, element) end
for _, key in ipairs({messages, originals}) do redis.call('PEXPIREAT', key, expires_ms) end -- [all expire]
return 1

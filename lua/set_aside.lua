-- Renames the keys of a session that cannot be read, so that it starts afresh and somebody can look at what it was.
-- Looks for itself whether a key has a foreign type, or the state no epoch or no counters; else it believes the caller
-- about the epoch it saw.
-- KEYS
--   messages
--   state
--   originals
--   corrupt_messages
--   corrupt_state
--   corrupt_originals
--   active
--   overdue
--   leased
--   dead
--   evictions
-- ARGV
--   session
--   epoch       that the caller could not decode, or empty
--   timeout_ms  the time to live of what had none
-- REPLY the number of keys set aside, 0 where another caller did it already
-- ERROR
local messages, state, originals, corrupt_messages, corrupt_state, corrupt_originals,
  active, overdue, leased, dead, evictions = unpack(KEYS)
local session, epoch, timeout_ms = unpack(ARGV)
local function kind(key) return redis.call('TYPE', key).ok end
local function foreign(key, expected) return kind(key) ~= 'none' and kind(key) ~= expected end
local broken = foreign(state, 'hash') or foreign(messages, 'list') or foreign(originals, 'list')
if not broken then
  local seen = redis.call('HMGET', state, 'epoch', 'counters')
  broken = not string.find(seen[1] or '', '^[%w-]+$')
    or not string.find(seen[2] or '', '^%d+ %d+ %d+ %d+ %d+ ?%a*$')
  if not broken and seen[1] ~= epoch then return 0 end
end
local moved = 0
for key, aside in pairs({[messages] = corrupt_messages, [state] = corrupt_state, [originals] = corrupt_originals}) do
  if kind(key) ~= 'none' then
    redis.call('RENAME', key, aside)
    if redis.call('PTTL', aside) < 0 then redis.call('PEXPIRE', aside, timeout_ms) end
    moved = moved + 1
  end
end
for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, session) end
return moved

-- Renames the keys of an unreadable session: the session starts afresh, and an operator can inspect the old keys.
-- Checks for foreign types, and a missing epoch or counters; otherwise relies on the caller, if the epoch is the one that
-- the caller saw. Sessions with another layout version are left alone.
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
-- ARGV
--   session
--   epoch       of the session that the caller could not decode, - if it saw none
--   idle_timeout_ms  time to live of keys without one
-- FIELDS reads epoch counters
-- REPLY number of renamed keys, 0 if another caller renamed them already
-- ERROR LAYOUT version
local messages, state, originals, vectors, quarantine_messages, quarantine_state, quarantine_originals,
  active, overdue, leased, dead, evictions, owners = unpack(KEYS)
local session, epoch, idle_timeout_ms = unpack(ARGV)
local function kind(key) return redis.call('TYPE', key).ok end
local function is_foreign(key, expected) return kind(key) ~= 'none' and kind(key) ~= expected end
local is_broken = is_foreign(state, 'hash') or is_foreign(messages, 'list') or is_foreign(originals, 'hash')
if not is_foreign(state, 'hash') then
  local seen_epoch, counters = unpack(redis.call('HMGET', state, 'epoch', 'counters'))
  counters = counters or ''
  --- @include layout
  --- @include parsed
  is_broken = is_broken or not string.find(seen_epoch or '', '^[%w-]+$') or not window_first_seq
  if not is_broken and seen_epoch ~= epoch then return 0 end -- [epoch]
end
local moved = 0
for key, kept in pairs({[messages] = quarantine_messages, [state] = quarantine_state, [originals] = quarantine_originals}) do
  if kind(key) ~= 'none' then
    redis.call('RENAME', key, kept)
    if redis.call('PTTL', kept) < 0 then redis.call('PEXPIRE', kept, idle_timeout_ms) end
    moved = moved + 1
  end
end
--- @include unindex
-- Its vectors are also stored beside the originals.
redis.call('DEL', vectors)
return moved

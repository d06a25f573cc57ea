-- Moves an unreadable record into quarantine, so that its next writer begins a new one. Leaves alone a readable one, unless
-- the move is forced, and one of another release.
-- KEYS
--   records
--   owned
--   record
--   order
--   copies         time of each copy in quarantine, and what is known of it
--   copied_record
--   copied_order
-- ARGV
--   id
--   put_ms
--   birth         owner and tag as the caller knows them, for a record that does not tell
--   knows_owner   1 or 0: 0 means that the caller named no owner
--   kept_ms       time to live of a record without one
--   is_forced     1 or 0
-- FIELDS
-- REPLY 1 moved, 0 readable or gone
-- ERROR FORMAT version
local records, owned, record, order, copies, copied_record, copied_order = unpack(KEYS)
local id, put_ms, birth, knows_owner, kept_ms, is_forced = unpack(ARGV)
local kind, order_kind = redis.call('TYPE', record).ok, redis.call('TYPE', order).ok
local described = kind == 'hash' and redis.call('HGET', record, '') or ''
local is_current = string.sub(described, 1, 2) == 'v1'
local version = not is_current and string.match(described, '^v(%d+)')
if version then return redis.error_reply('FORMAT ' .. version) end -- [format]
local birth_at = 12 + 8 * (string.byte(described, 11) or 255)
local is_readable = is_current and string.find(described, '^%d+:', birth_at)
if is_readable then birth, knows_owner = string.sub(described, birth_at), '1' end -- [told]
local has_record, has_order = kind ~= 'none', order_kind ~= 'none'
local is_sound = (not has_record or is_readable) and (not has_order or order_kind == 'zset')
if is_sound and (is_forced == '0' or not has_record and not has_order) then return 0 end -- [sound]
local expiring = has_record and record or order
local expires_ms = redis.call('PEXPIRETIME', expiring)
local lasts = expires_ms < 0 and '1' or '0'
if lasts == '1' then expires_ms = redis.call('TIME')[1] * 1000 + kept_ms end -- [persistent]
-- Removals first: they pass if Redis is out of memory.
redis.call('ZREM', records, id) -- [not listed]
redis.call('ZREM', owned, id) -- [owner not listed]
redis.call('HSET', copies, put_ms, lasts .. knows_owner .. birth) -- [noted]
redis.call('PEXPIREAT', copies, math.max(expires_ms, redis.call('PEXPIRETIME', copies))) -- [note expires]
if has_order then
  redis.call('PEXPIREAT', order, expires_ms) -- [order expires]
  redis.call('RENAME', order, copied_order) -- [order moved]
end
if has_record then
  redis.call('PEXPIREAT', record, expires_ms) -- [record expires]
  redis.call('RENAME', record, copied_record) -- [record moved]
end
return 1

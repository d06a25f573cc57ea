-- Restores a record from quarantine with a description written anew; refused if a record with its id exists. A part of a
-- foreign type stays in quarantine.
-- KEYS
--   records
--   owned
--   record
--   order
--   copies
--   copied_record
--   copied_order
-- ARGV
--   id
--   put_ms
--   life    8 random bytes, which identify this restoration
--   score   of the owner, or - without one
--   birth   owner and tag, as the description ends
--   lasts   1 or 0: 1 removes the time to live
-- FIELDS
-- REPLY 1 restored now or before, 0 no fields in quarantine
-- ERROR LIVE record
local records, owned, record, order, copies, copied_record, copied_order = unpack(KEYS)
local id, put_ms, life, score, birth, lasts = unpack(ARGV)
local is_live = redis.call('EXISTS', record, order) > 0
if is_live then
  local described = redis.call('TYPE', record).ok == 'hash' and redis.call('HGET', record, '') or ''
  if string.sub(described, 3, 10) ~= life then return redis.error_reply('LIVE record') end -- [live]
elseif redis.call('TYPE', copied_record).ok ~= 'hash' then return 0 end -- [fields]
local has_order = redis.call('TYPE', copied_order).ok == 'zset'
redis.call('ZADD', records, 0, id) -- [listed]
if score ~= '-' then redis.call('ZADD', owned, score, id) end -- [owner listed]
if not is_live then
  redis.call('HSET', copied_record, '', 'v1' .. life .. '\0' .. birth) -- [described]
  if lasts == '1' then redis.call('PERSIST', copied_record) end -- [record persists]
  redis.call('RENAME', copied_record, record) -- [record moved]
end
if has_order then
  if lasts == '1' then redis.call('PERSIST', copied_order) end -- [order persists]
  redis.call('RENAME', copied_order, order) -- [order moved]
end
if redis.call('EXISTS', copied_order) == 0 then redis.call('HDEL', copies, put_ms) end -- [no copy left]
return 1

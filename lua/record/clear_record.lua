-- Removes a whole record: the one of a life, or whichever there is. A resent call spares a newer record. The copies in
-- quarantine stay: their keys are known only by their times, which it returns.
-- KEYS
--   records
--   owned
--   updated
--   record
--   order
--   copies    time of each copy in quarantine
--   cleared   only with *: the life that this call removed
-- ARGV
--   id
--   life      8 bytes; none if there was no key, other if it was no record; * for whichever there is
--   noted_ms  time to live of cleared
--   named     only with *: owner that the record must have, as described, empty for any; then checks as in write_record
-- FIELDS
-- REPLY 1 there was such a record, 0 none; negative: the number of the check that does not hold; then the times of the copies
-- ERROR OWNER other
local records, owned, updated, record, order, copies, cleared = unpack(KEYS)
local id, life, noted_ms, named = unpack(ARGV, 1, 4)
local kind = redis.call('TYPE', record).ok
local described = kind == 'hash' and redis.call('HGET', record, '')
local found = kind == 'none' and 'none' or described and string.sub(described, 3, 10) or 'other'
local reply = redis.call('HKEYS', copies)
local noted = cleared and redis.call('GET', cleared)
if cleared and not noted then
  local birth_at = described and 12 + 8 * (string.byte(described, 11) or 255)
  local is_told = described and string.find(described, '^%d+:', birth_at)
  if is_told and string.sub(described, birth_at, birth_at + #named - 1) ~= named then
    return redis.error_reply('OWNER other') -- [same owner]
  end
  for at = 5, #ARGV, 2 do
    local field, expected = unpack(ARGV, at, at + 1)
    local value = kind == 'hash' and redis.call('HGET', record, field)
    local holds = not value and expected == '' or value and (expected == '*' or expected == '=' .. value)
    if not holds then return {(3 - at) / 2} end -- [check]
  end
end
if cleared then life = noted or found end -- [sent again]
if life == found then
  redis.call('ZREM', records, id) -- [not listed]
  redis.call('ZREM', owned, id) -- [owner not listed]
  redis.call('ZREM', updated, id) -- [update not listed]
  -- The note comes first: if a crash cuts the log after it, a resent call removes the rest of the record, and no other.
  if cleared then redis.call('SET', cleared, life, 'PX', noted_ms) end -- [noted]
  redis.call('UNLINK', record, order) -- [removed]
end
table.insert(reply, 1, life ~= 'none' and 1 or 0)
return reply

-- Removes a whole record, if its life is the one the caller saw: a repeated call spares a newer record. Also removes its
-- copies in quarantine.
-- KEYS
--   records
--   owned
--   record
--   order
--   copies   time of each copy in quarantine; then both keys of each that the caller saw
-- ARGV
--   id
--   life     8 bytes; none if there was no key, other if it was no record; ? asks for it; then the owner to check, or checks as in write_record
-- FIELDS
-- REPLY the life, if asked for, and the times of the copies; 1 removed, 0 already gone; negative: the number of the check that does not hold
-- ERROR OWNER other
local records, owned, record, order, copies = unpack(KEYS, 1, 5)
local id, life = unpack(ARGV, 1, 2)
local kind = redis.call('TYPE', record).ok
local described = kind == 'hash' and redis.call('HGET', record, '')
local found = kind == 'none' and 'none' or described and string.sub(described, 3, 10) or 'other'
if life == '?' then
  local named = unpack(ARGV, 3, 3)
  local birth_at = described and 12 + 8 * (string.byte(described, 11) or 255)
  local is_told = described and string.find(described, '^%d+:', birth_at)
  if is_told and string.sub(described, birth_at, birth_at + #named - 1) ~= named then
    return redis.error_reply('OWNER other') -- [same owner]
  end
  return {found, unpack(redis.call('HKEYS', copies))}
end
if life ~= found then return 0 end -- [life]
for at = 3, #ARGV, 2 do
  local field, expected = unpack(ARGV, at, at + 1)
  local value = kind == 'hash' and redis.call('HGET', record, field)
  local holds = not value and expected == '' or value and (expected == '*' or expected == '=' .. value)
  if not holds then return (1 - at) / 2 end -- [check]
end
redis.call('ZREM', records, id) -- [not listed]
redis.call('ZREM', owned, id) -- [owner not listed]
if redis.call('HLEN', copies) <= (#KEYS - 5) / 2 then redis.call('UNLINK', copies) end -- [all seen]
return redis.call('UNLINK', record, order, unpack(KEYS, 6)) > 0 and 1 or 0 -- [removed]

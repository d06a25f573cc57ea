-- Reads the description of a record, its field with the empty name. Refuses the one of another release, a damaged one, and
-- one that does not name the owner that the caller names.
-- READS record named
-- SETS described is_current version birth_at
local described = redis.call('HGET', record, '')
local is_current = described and string.sub(described, 1, 2) == 'v1'
local version = described and not is_current and string.match(described, '^v(%d+)')
if version then return redis.error_reply('FORMAT ' .. version) end -- [format]
if described and not (is_current and string.find(described, '^%d+:', 12 + 8 * (string.byte(described, 11) or 255))) then
  return redis.error_reply('CORRUPT description') -- [damaged]
end
local birth_at = described and 12 + 8 * string.byte(described, 11)
if described and string.sub(described, birth_at, birth_at + #named - 1) ~= named then
  return redis.error_reply('OWNER other') -- [same owner]
end

-- Reads the description of a record, its field with the empty name. Refuses the one of another release.
-- READS record
-- SETS described
local described = redis.call('HGET', record, '')
if described and string.sub(described, 1, 2) ~= 'v1' then -- [format]
  return redis.error_reply('FORMAT ' .. (string.match(described, '^v(%d+)') or '?'))
end

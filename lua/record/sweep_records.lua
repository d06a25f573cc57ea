-- Removes expired records of a shard from its indexes, and lists the others by their owners. The arguments are the ids.
-- KEYS
--   records
--   owned
--   updated   then hash and order of each record
-- ARGV
-- FIELDS
-- REPLY number of records removed from the indexes, number of records repaired
-- ERROR
local records, owned, updated = unpack(KEYS, 1, 3)
local removed, repaired = 0, 0
for place, id in ipairs(ARGV) do
  local record, order = KEYS[2 + 2 * place], KEYS[3 + 2 * place]
  local kind = redis.call('TYPE', record).ok
  if kind == 'none' then
    redis.call('ZREM', records, id) -- [expired]
    redis.call('ZREM', owned, id) -- [owner expired]
    redis.call('ZREM', updated, id) -- [update expired]
    redis.call('UNLINK', order) -- [order expired]
    removed = removed + 1
  end
  local described = kind == 'hash' and redis.call('HGET', record, '') or ''
  if string.sub(described, 1, 2) == 'v1' then -- [format]
    local ring_end = 11 + 8 * (string.byte(described, 11) or 0)
    local score = string.match(string.sub(described, ring_end + 1), '^%d+:(%d+) ')
    local is_listed = redis.call('ZADD', records, 0, id) == 1 -- [listed]
    local is_owned = score and redis.call('ZADD', owned, score, id) == 1 -- [owner listed]
    if not score then is_owned = redis.call('ZREM', owned, id) == 1 end -- [no owner]
    if is_listed or is_owned then repaired = repaired + 1 end
  end
end
return {removed, repaired}

-- Removes the session's vector set. Its vectors are also stored beside the blocks, which are searched again.
-- READS originals vectors
-- SETS
redis.call('DEL', vectors)
if redis.call('HEXISTS', originals, 'vectors') == 1 then
  for _, field in ipairs(redis.call('HKEYS', originals)) do
    if string.find(field, '^w') then
      redis.call('HSET', originals, 'v' .. string.sub(field, 2), redis.call('HGET', originals, field))
      redis.call('HDEL', originals, field)
    end
  end
  redis.call('HDEL', originals, 'vectors')
end

-- Removes blocks of originals from a number on, with signatures and vectors, and sets what is left of the first of them.
-- READS originals vectors block first_original expires_ms
-- SETS
if block ~= '-' then
  --- @include drop_vectors
  for _, name in ipairs(redis.call('HKEYS', originals)) do
    local number = string.match(name, '^[svw]?(%d+)$')
    if number and tonumber(number) >= tonumber(block) then redis.call('HDEL', originals, name) end -- [cut originals]
  end
  if first_original <= #ARGV then
    redis.call('HSET', originals, unpack(ARGV, first_original)) -- [rest of the block]
    redis.call('PEXPIREAT', originals, expires_ms) -- [expires again]
  end
end

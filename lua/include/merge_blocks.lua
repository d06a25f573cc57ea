-- Removes the other three of four blocks that a new merged block replaces. It is set already, under the first number.
-- READS originals merged
-- SETS
if merged ~= '-' then
  for block = merged + 1, merged + 3 do redis.call('HDEL', originals, block, 's' .. block) end -- [merged]
end

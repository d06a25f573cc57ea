-- Removes the four blocks that a new merged block replaces, except its own number, which is set already.
-- READS originals merged
-- SETS
if merged ~= '-' then
  for block = merged + 1, merged + 3 do redis.call('HDEL', originals, block, 's' .. block) end -- [merged]
end

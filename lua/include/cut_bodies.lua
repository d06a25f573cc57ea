-- Removes the bodies of the messages from a seq on.
-- READS originals policy from_seq
-- SETS
if string.find(policy, 'b', 1, true) then
  for _, name in ipairs(redis.call('HKEYS', originals)) do
    local seq = tonumber(string.match(name, '^b(%d+)$'))
    if seq and seq >= tonumber(from_seq) then redis.call('HDEL', originals, name) end -- [bodies go]
  end
end

-- Removes all originals, except the bodies of messages from a seq on, which are still in the window.
-- READS originals vectors policy next_kept
-- SETS
redis.call('DEL', vectors)
if string.find(policy, 'b', 1, true) then
  for _, name in ipairs(redis.call('HKEYS', originals)) do
    local seq = tonumber(string.match(name, '^b(%d+)$'))
    if not seq or seq < tonumber(next_kept) then redis.call('HDEL', originals, name) end -- [bodies stay]
  end
else
  redis.call('DEL', originals) -- [originals go]
end

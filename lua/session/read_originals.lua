-- Reads the originals of a session for a check. Of bodies that have left the window it reads the names alone: together they
-- may be larger than any reply.
-- KEYS
--   originals
-- ARGV
-- FIELDS
-- REPLY fields and values alternating, the value of a body empty
-- ERROR
local originals = unpack(KEYS)
local reply = {}
for _, name in ipairs(redis.call('HKEYS', originals)) do
  reply[#reply + 1], reply[#reply + 2] = name, string.match(name, '^b%d+$') and '' or redis.call('HGET', originals, name)
end
return reply

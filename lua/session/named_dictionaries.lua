-- Reads which dictionaries the blocks of a session's originals name, a part of the blocks at a time. Reads the values of
-- other fields only if there are too many names for one call, because a body may be large.
-- KEYS
--   originals
-- ARGV
--   cursor  0 for the first part
--   count   fields to look at, about
-- FIELDS
-- REPLY the next cursor, 0 after the last part; then the numbers of dictionaries, 0 for none
-- ERROR
local originals = unpack(KEYS)
local cursor, count = unpack(ARGV)
if redis.call('TYPE', originals).ok ~= 'hash' then return {0} end
local next_cursor, entries = '0', {}
if cursor == '0' and redis.call('HLEN', originals) <= count * 5 then
  for _, name in ipairs(redis.call('HKEYS', originals)) do
    local is_block = string.match(name, '^%d+$')
    entries[#entries + 1], entries[#entries + 2] = name, is_block and redis.call('HGET', originals, name) or ''
  end
else
  next_cursor, entries = unpack(redis.call('HSCAN', originals, cursor, 'COUNT', count))
end
local reply, seen = {tonumber(next_cursor)}, {}
for at = 1, #entries, 2 do
  local number = string.match(entries[at], '^%d+$') and string.byte(entries[at + 1], 3)
  if number and not seen[number] then
    seen[number] = true
    reply[#reply + 1] = number
  end
end
return reply

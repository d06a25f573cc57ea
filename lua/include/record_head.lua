-- Parses a head: the parent of a member, then the names of other fields. Each is its length, a colon and its bytes; the
-- first byte that begins no length ends the list. Anything else has neither parent nor names.
-- READS head
-- SETS parent names after_names
local parent, names, after_names = nil, {}, 1
while true do
  local size, start = string.match(head, '^(%d+):()', after_names)
  if not size or #size > 7 then break end
  local name = string.sub(head, start, start + size - 1)
  after_names = start + size
  if parent then names[#names + 1] = name else parent = name end
  if #names > 10000 then return redis.error_reply('WIDE 10000') end
end

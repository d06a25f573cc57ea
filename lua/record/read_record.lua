-- Reads members of a record in lexicographic order with their fields; on request also the fields that each head names, and
-- the members and fields of a range whose beginning derives from the member.
-- KEYS
--   record
--   order
-- ARGV
--   ttl_ms         renews the expiry; - leaves it as it is
--   now_ms         - for the server's clock
--   from           bounds of ZRANGE BYLEX
--   to
--   is_reversed    1 or 0: from the greatest member downwards
--   limit          most members
--   budget_bytes   no further member once the reply is larger, or has 40,000 elements
--   with_names     1 or 0
--   prefix_size    bytes of the member before the part that the range takes over
--   range_prefix
--   range_suffix   at least one byte; nothing reads no range
--   range_end      the least suffix greater than every beginning with range_suffix
--   range_limit    most members of one range
--   named          the owner that the record must have, as its description contains it; empty for any
-- FIELDS
-- REPLY 1 if there is more, else 0; then of each member: name, value, count of names, each with its value, count of the
--   range, each member with its value. A missing value is nil
-- ERROR FORMAT version · CORRUPT description · OWNER other · PAST now_ms · WIDE limit
local record, order = unpack(KEYS)
local ttl_ms, now_ms, from, to, is_reversed, limit, budget_bytes, with_names, prefix_size, range_prefix, range_suffix,
  range_end, range_limit, named = unpack(ARGV, 1, 14)
--- @include record_format
if not described then return {0} end
--- @include renew_record
local members
if is_reversed == '1' then
  members = redis.call('ZRANGE', order, to, from, 'BYLEX', 'REV', 'LIMIT', 0, limit + 1)
else
  members = redis.call('ZRANGE', order, from, to, 'BYLEX', 'LIMIT', 0, limit + 1)
end
local reply, size = {0}, 0
local function put(wanted)
  reply[#reply + 1] = #wanted
  for at = 1, #wanted, 1000 do
    local part = {unpack(wanted, at, math.min(at + 999, #wanted))}
    for place, value in ipairs(redis.call('HMGET', record, unpack(part))) do
      reply[#reply + 1], reply[#reply + 2] = part[place], value
      size = size + #part[place] + (value and #value or 0)
    end
  end
end
for place, member in ipairs(members) do
  if place > tonumber(limit) or size > tonumber(budget_bytes) or #reply > 40000 then -- [limit]
    reply[1] = 1
    break
  end
  local head = redis.call('HGET', record, member)
  reply[#reply + 1], reply[#reply + 2] = member, head
  size = size + #member + (head and #head or 0)
  local names_of_head = {}
  if with_names == '1' and head then
    --- @include record_head
    names_of_head = names
  end
  put(names_of_head)
  local range = {}
  if range_suffix ~= '' then
    local beginning = range_prefix .. string.sub(member, prefix_size + 1)
    local least, end_ = '[' .. beginning .. range_suffix, '(' .. beginning .. range_end
    range = redis.call('ZRANGE', order, least, end_, 'BYLEX', 'LIMIT', 0, range_limit)
  end
  put(range)
end
return reply

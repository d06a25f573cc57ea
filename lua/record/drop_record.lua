-- Removes members of a record, least first, and the fields of the same names.
-- KEYS
--   record
--   order
-- ARGV
--   from    bounds of ZRANGE BYLEX
--   to
--   limit   most members
--   sending 12 bytes, as in the token of an append
--   named   the owner that the record must have, as its description contains it; empty for any
-- FIELDS
-- REPLY number of removed members
-- ERROR OVERTAKEN sending · FORMAT version · CORRUPT description · OWNER other
local record, order = unpack(KEYS)
local from, to, limit, sending, named = unpack(ARGV)
--- @include record_format
local ring_end, overtaking = described and 11 + 8 * string.byte(described, 11) or 11, nil
--- @include record_resent
--- @include overtaken
local members = redis.call('ZRANGE', order, from, to, 'BYLEX', 'LIMIT', 0, limit)
if #members > 0 then
  redis.call('HDEL', record, unpack(members)) -- [fields]
  redis.call('ZREM', order, unpack(members)) -- [members]
end
if overtaking and described then
  redis.call('HSET', record, '', string.sub(described, 1, birth_end) .. #overtaking .. ':' .. overtaking) -- [noted]
end
return #members

-- Removes members of a record, least first, and the fields of the same names.
-- KEYS
--   record
--   order
-- ARGV
--   from    bounds of ZRANGE BYLEX
--   to
--   limit   most members
-- FIELDS
-- REPLY number of removed members
-- ERROR FORMAT version · CORRUPT description
local record, order = unpack(KEYS)
local from, to, limit = unpack(ARGV)
--- @include record_format
local members = redis.call('ZRANGE', order, from, to, 'BYLEX', 'LIMIT', 0, limit)
if #members == 0 then return 0 end
redis.call('HDEL', record, unpack(members)) -- [fields]
redis.call('ZREM', order, unpack(members)) -- [members]
return #members

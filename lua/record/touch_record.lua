-- Renews the expiry of a record.
-- KEYS
--   record
--   order
-- ARGV
--   ttl_ms   - leaves it as it is
--   now_ms   - for the server's clock
--   named    the owner that the record must have, as its description contains it; empty for any
-- FIELDS
-- REPLY 1 renewed, 0 no such record
-- ERROR FORMAT version · CORRUPT description · OWNER other · PAST now_ms
local record, order = unpack(KEYS)
local ttl_ms, now_ms, named = unpack(ARGV)
--- @include record_format
if not described then return 0 end
--- @include renew_record
return 1

-- Renews the expiry of a record.
-- KEYS
--   record
--   order
-- ARGV
--   ttl_ms   - leaves it as it is
--   now_ms   - for the server's clock
-- FIELDS
-- REPLY 1 renewed, 0 no such record
-- ERROR FORMAT version · CORRUPT description · PAST now_ms
local record, order = unpack(KEYS)
local ttl_ms, now_ms = unpack(ARGV)
--- @include record_format
if not described then return 0 end
--- @include renew_record
return 1

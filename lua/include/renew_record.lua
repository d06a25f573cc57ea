-- Renews the expiry of a record, if there is a time to live: both keys expire at the same time.
-- READS record order ttl_ms now_ms
-- SETS expires_ms
--- @include record_expiry
if expires_ms then
  redis.call('PEXPIREAT', order, expires_ms) -- [order expires]
  redis.call('PEXPIREAT', record, expires_ms) -- [record expires]
end

-- Changes the index of an owner, or notes that the index must be checked. An index without entries goes.
-- KEYS
--   index
--   indexes
-- ARGV
--   owner
--   now_ms        - for the server's clock
--   soon_ms       time until the index must be checked
--   seen_ms       - unless this call ends a check: the due time that was found before it
--   due_ms        the next due time, if this call ends a check and nothing was noted meanwhile
--   expires_ms    the index lives at least until then
--   version       of the index after a change
--   dropped_count then the names of dropped fields; then the fields that are set, each with its value
-- FIELDS
-- REPLY 1 there is an index, 0 there is none
-- ERROR
local index, indexes = unpack(KEYS)
local owner, now_ms, soon_ms, seen_ms, due_ms, expires_ms, version, dropped_count = unpack(ARGV, 1, 8)
--- @include now
local first_set = 9 + dropped_count
-- Removal first: a script that has written may continue when memory is short.
for at = 9, first_set - 1 do redis.call('HDEL', index, ARGV[at]) end -- [dropped]
for at = first_set, #ARGV, 2 do redis.call('HSET', index, ARGV[at], ARGV[at + 1]) end -- [set]
if redis.call('HLEN', index) < 2 and #ARGV < first_set then -- [no entries]
  redis.call('DEL', index) -- [empty]
  redis.call('ZREM', indexes, owner) -- [gone]
  return 0
end
if #ARGV >= 9 then redis.call('HSET', index, 'version', version) end -- [changed]
local due = tonumber(redis.call('ZSCORE', indexes, owner))
if due and due == tonumber(seen_ms) then -- [as it was found]
  redis.call('ZADD', indexes, due_ms, owner) -- [checked]
elseif not due or now + soon_ms < due then -- [sooner]
  redis.call('ZADD', indexes, now + soon_ms, owner) -- [to check]
elseif due <= now and #ARGV < 9 then -- [a note]
  -- A running check may have read the session that is about to change: its end must find another due time.
  redis.call('ZADD', indexes, due - 1, owner) -- [noted during a check]
end
if redis.call('PEXPIRETIME', index) < tonumber(expires_ms) then -- [longer]
  redis.call('PEXPIREAT', index, expires_ms) -- [expiry]
end
return 1

-- Pushes the messages of an append: the last write, because a resent append must not push them again, see append_writes.lua.
-- READS messages message_count elements count_before expires_ms
-- SETS
if message_count > 0 then redis.call('RPUSH', messages, unpack(elements)) end
if count_before == 0 then redis.call('PEXPIREAT', messages, expires_ms) end

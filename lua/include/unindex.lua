-- Removes a session from every index of the shard.
-- READS active overdue leased dead evictions session
-- SETS
for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, session) end -- [all]

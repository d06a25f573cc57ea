-- Removes a session from every index of the shard.
-- READS active overdue leased dead evictions owners turns session
-- SETS
for _, index in ipairs({active, overdue, leased, dead, evictions, owners, turns}) do redis.call('ZREM', index, session) end -- [all]

-- Records why a summary failed; keeps the time of the first failure since the last commit.
-- READS state now failure reason
-- SETS since
local since = string.match(failure or '', '^%d+') or string.format('%d', now) -- [since the first]
redis.call('HSET', state, 'failure', string.format('%s %d %s', since, now, reason))

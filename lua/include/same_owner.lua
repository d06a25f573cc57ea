-- Refuses a session that has another owner than the caller names, or none.
-- READS state owner
-- SETS known
local known = owner ~= '-' and redis.call('HMGET', state, 'owner', 'counters')
if known and (known[1] or known[2]) and known[1] ~= owner then return redis.error_reply('OWNER other') end -- [same owner]

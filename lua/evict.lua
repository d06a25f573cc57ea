-- Removes a session whole, if it is as it was when its transcript was taken.
-- KEYS
--   messages
--   state
--   originals
--   active
--   overdue
--   leased
--   dead
--   evictions
-- ARGV
--   session
--   epoch
--   message_count
-- REPLY 1 evicted, 0 touched since, or gone
-- ERROR
local messages, state, originals, active, overdue, leased, dead, evictions = unpack(KEYS)
local session, epoch, message_count = unpack(ARGV)
local seen = redis.call('HMGET', state, 'epoch', 'counters')
local total, reason = string.match(seen[2] or '', '^%d+ (%d+) %d+ %d+ %d+ ?(%a*)$')
if seen[1] ~= epoch or total ~= message_count or reason == '' then return 0 end
for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, session) end
redis.call('DEL', messages, state, originals)
return 1

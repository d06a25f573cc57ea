-- Gives a claimed session back after a failed attempt: it is due again later, or dead after too many.
-- KEYS
--   state
--   overdue
--   leased
--   dead
-- ARGV
--   session
--   now_ms        the server's clock where empty
--   fence
--   backoff_ms
--   counts        0: this attempt does not count
--   max_attempts  0: it is dead whatever the attempts
-- REPLY outcome: ok, dead, fenced
-- ERROR
local state, overdue, leased, dead = unpack(KEYS)
local session, now_ms, fence, backoff_ms, counts, max_attempts = unpack(ARGV)
local seen = redis.call('HMGET', state, 'fence', 'attempts')
if seen[1] ~= fence then return 'fenced' end
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local attempts = seen[2] - (1 - counts)
local outcome, queue, name, due = 'ok', overdue, 'overdue', now + backoff_ms
if attempts >= tonumber(max_attempts) then outcome, queue, name, due = 'dead', dead, 'dead', now end
redis.call('ZREM', leased, session)
redis.call('ZADD', queue, due, session)
redis.call('HSET', state, 'queued', name, 'attempts', attempts)
redis.call('HDEL', state, 'fence')
return outcome

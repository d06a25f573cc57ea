-- Gives a claimed session back after a failed attempt: it is due again later, or dead after too many.
-- KEYS
--   state
--   overdue
--   leased
--   dead
-- ARGV
--   session
--   now_ms        - for the server's clock
--   fence
--   backoff_ms
--   counts        0: this attempt does not count
--   max_attempts  0: it is dead whatever the attempts
-- FIELDS reads fence attempts
--   writes queued attempts fence
-- REPLY outcome: ok, dead, fenced
-- ERROR
local state, overdue, leased, dead = unpack(KEYS)
local session, now_ms, fence, backoff_ms, counts, max_attempts = unpack(ARGV)
local seen_fence, attempts = unpack(redis.call('HMGET', state, 'fence', 'attempts'))
if seen_fence ~= fence then return 'fenced' end -- [fence]
--- @include now
attempts = attempts - (1 - counts) -- [counts]
local outcome, queue, name, due = 'ok', overdue, 'overdue', now + backoff_ms -- [due]
if attempts >= tonumber(max_attempts) then outcome, queue, name, due = 'dead', dead, 'dead', now end -- [attempts left]
redis.call('ZREM', leased, session) -- [end of the lease]
redis.call('ZADD', queue, due, session)
redis.call('HSET', state, 'queued', name, 'attempts', attempts)
redis.call('HDEL', state, 'fence') -- [end of the fence]
return outcome

-- Releases a claimed session after a failed attempt: it is due again later, or dead after too many attempts.
-- KEYS
--   state
--   overdue
--   leased
--   dead
-- ARGV
--   session
--   now_ms        - for the server's clock
--   fence
--   backoff_ms    negative returns it to its place in the queue
--   counts        0 does not count this attempt
--   max_attempts  0 lists it as dead whatever its attempts
--   reason        of the failure, without any text; - records none
-- FIELDS reads fence attempts failure deaths
--   writes queued attempts fence failure deaths
-- REPLY outcome: ok, dead, fenced
-- ERROR
local state, overdue, leased, dead = unpack(KEYS)
local session, now_ms, fence, backoff_ms, counts, max_attempts, reason = unpack(ARGV)
local seen_fence, attempts, failure, deaths =
  unpack(redis.call('HMGET', state, 'fence', 'attempts', 'failure', 'deaths'))
if seen_fence ~= fence then return 'fenced' end -- [fence]
--- @include now
attempts = attempts - (1 - counts) -- [counts]
local outcome, queue, name, due = 'ok', overdue, 'overdue', now + backoff_ms -- [due]
if attempts >= tonumber(max_attempts) then outcome, queue, name, due = 'dead', dead, 'dead', now end -- [attempts left]
redis.call('ZREM', leased, session) -- [end of the lease]
redis.call('ZADD', queue, due, session)
redis.call('HSET', state, 'queued', name, 'attempts', attempts)
if outcome == 'dead' then redis.call('HSET', state, 'deaths', (deaths or 0) + 1) end -- [deaths]
if reason ~= '-' then
  --- @include failed
end
redis.call('HDEL', state, 'fence') -- [end of the fence]
return outcome

-- Repairs the indexes of a shard for some sessions, after expired or evicted keys, and retries dead sessions, each time
-- after twice the wait.
-- KEYS
--   active
--   overdue
--   leased
--   dead
--   evictions
--   owners
--   turns      then the state of each session
-- ARGV
--   now_ms        - for the server's clock
--   max_attempts  a retried dead session has one attempt left
--   first_ms      first wait before the retry of a dead session
--   longest_ms    longest wait; then each session
-- FIELDS reads counters queued owner deaths
--   writes counters queued fence attempts
-- REPLY number of sessions removed from the indexes, number of sessions repaired or retried
-- ERROR
local active, overdue, leased, dead, evictions, owners, turns = unpack(KEYS, 1, 7)
local now_ms, max_attempts, first_ms, longest_ms = unpack(ARGV, 1, 4)
local states, sessions = {unpack(KEYS, 8)}, {unpack(ARGV, 5)}
--- @include now
local queues = {overdue = overdue, leased = leased, dead = dead}
local function repair(session, state, queued, owner, active_ms, without_reason, watched_ms)
  local is_repaired = false
  for name, queue in pairs(queues) do
    if name ~= queued and redis.call('ZREM', queue, session) == 1 then is_repaired = true end -- [in one queue]
  end
  local named = queues[queued]
  if named and not redis.call('ZSCORE', named, session) then
    redis.call('ZADD', overdue, now, session) -- [found again]
    redis.call('HSET', state, 'queued', 'overdue')
    redis.call('HDEL', state, 'fence', 'attempts') -- [end of the claim]
    is_repaired = true
  elseif queued == 'dead' then
    local deaths = math.max(1, tonumber(redis.call('HGET', state, 'deaths') or 1) or 1)
    local wait_ms = math.min(tonumber(longest_ms), first_ms * 2 ^ (deaths - 1)) -- [ever more rarely]
    if redis.call('ZSCORE', dead, session) + wait_ms <= now then -- [dead for long]
      redis.call('ZREM', dead, session) -- [not dead any more]
      redis.call('ZADD', overdue, now, session)
      redis.call('HSET', state, 'queued', 'overdue', 'attempts', max_attempts - 1) -- [one try]
      is_repaired = true
    end
  end
  if not redis.call('ZSCORE', active, session) then
    redis.call('ZADD', active, active_ms, session) -- [listed]
    is_repaired = true
  end
  --- @include owned
  if (watched_ms or without_reason) and not redis.call('ZSCORE', evictions, session) then
    if watched_ms then redis.call('ZADD', evictions, watched_ms, session) end -- [watched again]
    if without_reason then redis.call('HSET', state, 'counters', without_reason) end -- [reason]
    is_repaired = true
  end
  return (is_repaired or is_relisted) and 1 or 0
end
local removed, repaired, kept_ms = 0, 0, nil
for number, state in ipairs(states) do
  local session, kind = sessions[number], redis.call('TYPE', state).ok
  -- Skips a key of a foreign type and unreadable counters, so that the other sessions are still swept: the next read of
  -- that session puts it into quarantine. Sessions with another layout version are left to their release.
  if kind == 'hash' or kind == 'none' then
    local counters, queued, owner = unpack(redis.call('HMGET', state, 'counters', 'queued', 'owner'))
    if not counters then
      --- @include unindex
      removed = removed + 1
    else
      --- @include parsed
      local without_reason = evicting ~= '' and string.gsub(counters, ' %a+$', '')
      if window_first_seq then
        --- @include policy
        local watched_ms = is_watched and -expires_ms
        repaired = repaired + repair(session, state, queued, owner, sign * active_ms, without_reason, watched_ms)
      end
    end
  end
end
return {removed, repaired}

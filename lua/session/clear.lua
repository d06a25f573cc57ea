-- Removes a whole session: the one of an epoch, or whichever there is. A resent call spares a newer session.
-- KEYS
--   messages
--   state
--   originals
--   turned
--   live
--   waiters
--   active
--   overdue
--   leased
--   dead
--   evictions
--   owners
--   turns
--   cleared   only with *: the epoch that this call removed
-- ARGV
--   session
--   epoch     - if the caller saw none, * for whichever there is
--   noted_ms  time to live of cleared
--   owner     only with *: the owner that the session must have, - for any
-- FIELDS reads counters epoch owner
-- REPLY 1 removed, now or before; 0 not there
-- ERROR OWNER other
local messages, state, originals, turned, live, waiters, active, overdue, leased, dead, evictions, owners, turns, cleared = unpack(KEYS)
local session, epoch, noted_ms, owner = unpack(ARGV)
local seen_epoch, seen_owner = unpack(redis.call('HMGET', state, 'epoch', 'owner'))
if not seen_epoch or seen_epoch == '' then seen_epoch = '-' end
local noted = epoch == '*' and redis.call('GET', cleared)
local was_there = noted and noted ~= '-'
if epoch == '*' and not noted then
  --- @include same_owner
end
if epoch == '*' then epoch = noted or seen_epoch end -- [sent again]
if seen_epoch ~= epoch then return was_there and 1 or 0 end -- [epoch]
--- @include unindex
-- The note comes first: if a crash cuts the log after it, a resent call removes the rest of the session, and no other.
if cleared then redis.call('SET', cleared, epoch, 'PX', noted_ms) end -- [noted]
return (redis.call('DEL', messages, state, turned, live, waiters, originals) > 0 or was_there) and 1 or 0

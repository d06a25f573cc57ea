-- Asks the running turn of a session to stop, if it is the one that the caller means. The first reason counts.
-- KEYS
--   state
--   stops       the channel of stops, which is no key
-- ARGV
--   generation  of the turn, - for any
--   name        of the turn, - for any
--   reason
--   owner       that the session must have, - for any
-- FIELDS reads turn stop owner counters
--   writes stop
-- REPLY 1 asked, 0 no such turn runs
-- ERROR OWNER other
local state, stops = unpack(KEYS)
local generation, name, reason, owner = unpack(ARGV)
--- @include same_owner
local turn, stop = unpack(redis.call('HMGET', state, 'turn', 'stop'))
--- @include turn
if status ~= 'r' then return 0 end -- [runs]
if generation ~= '-' and generation ~= seen_generation or name ~= '-' and name ~= seen_name then return 0 end -- [the one]
if not stop then redis.call('HSET', state, 'stop', reason) end -- [first reason]
redis.pcall('SPUBLISH', stops, seen_generation .. ' ' .. (stop or reason)) -- [told]
return 1

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
--   edited         as in the transcript, - for none; * if there is no transcript
-- FIELDS reads epoch counters edited
-- REPLY 1 evicted, 0 touched since, or gone
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals, active, overdue, leased, dead, evictions = unpack(KEYS)
local session, epoch, message_count, edited = unpack(ARGV)
local seen_epoch, counters, seen_edited = unpack(redis.call('HMGET', state, 'epoch', 'counters', 'edited'))
if seen_epoch ~= epoch then return 0 end -- [epoch]
counters = counters or ''
--- @include counters
if total ~= message_count then return 0 end -- [appended since]
if edited ~= '*' and (seen_edited or '-') ~= edited then return 0 end -- [edited since]
if evicting == '' then return 0 end -- [touched since]
--- @include unindex
redis.call('DEL', messages, state, originals) -- [removal]
return 1

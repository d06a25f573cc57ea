-- Reads the newest messages before a seq: of the window, or of the originals and the window as one list.
-- KEYS
--   messages
--   state
--   originals
-- ARGV
--   before_seq      - from the newest
--   limit
--   with_originals  1 or 0
-- FIELDS reads counters epoch with_originals
-- REPLY epoch start_seq, then the messages; nothing at all if there is no session
-- ERROR CORRUPT · LAYOUT version
local messages, state, originals = unpack(KEYS)
local before_seq, limit, with_originals = unpack(ARGV)
local counters, epoch, kept = unpack(redis.call('HMGET', state, 'counters', 'epoch', 'with_originals'))
if not counters then return {} end
--- @include counters
if not epoch then return redis.error_reply('CORRUPT no epoch') end
local first_seq = tonumber(window_first_seq)
local oldest = first_seq
if with_originals == '1' and kept then oldest = first_seq - redis.call('LLEN', originals) end
local stop = math.min(tonumber(before_seq) or math.huge, total + 1)
local start = math.max(oldest, stop - limit)
local reply = {epoch, start}
local function read(key, from, to)
  if from > to then return end
  for _, element in ipairs(redis.call('LRANGE', key, from, to)) do reply[#reply + 1] = element end
end
read(originals, start - oldest, math.min(stop, first_seq) - 1 - oldest)
read(messages, math.max(start, first_seq) - first_seq, stop - 1 - first_seq)
return reply

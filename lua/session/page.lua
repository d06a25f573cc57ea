-- Reads the newest messages before a seq, from the window, or from originals and window as one list. Originals are
-- returned as whole blocks, so the first and the last may hold more messages.
-- KEYS
--   messages
--   state
--   originals
-- ARGV
--   before_seq      - from the newest
--   limit
--   with_originals  1 or 0
--   block_count     messages of a full block
--   merged_blocks   blocks of a merged block, which has the number of the first one
--   owner           that the session must have, - for any
-- FIELDS reads counters epoch owner with_originals zone
-- REPLY epoch, start_seq, end of the originals, number of the first block, count of blocks, zone or empty; then the blocks, false for a
--   missing one; then the messages of the window. If a gap stands for several seqs: all elements of the window, and the
--   last seq. Empty if there is no session
-- ERROR OWNER other · CORRUPT · LAYOUT version
local messages, state, originals = unpack(KEYS)
local before_seq, limit, with_originals, block_count, merged_blocks, owner = unpack(ARGV)
--- @include same_owner
local counters, epoch, kept, zone = unpack(redis.call('HMGET', state, 'counters', 'epoch', 'with_originals', 'zone'))
if not counters then return {} end
--- @include counters
if not epoch then return redis.error_reply('CORRUPT no epoch') end
local first_seq = tonumber(window_first_seq)
local has_originals = with_originals == '1' and kept and redis.call('HLEN', originals) > 0
local oldest = has_originals and 1 or first_seq -- [originals]
local stop = math.min(tonumber(before_seq) or math.huge, total + 1)
local start = math.max(oldest, stop - limit)
local first_block = math.floor((start - 1) / block_count / merged_blocks) * merged_blocks -- [merged]
local reply = {epoch, start, math.min(stop, first_seq), first_block, 0, zone or ''}
-- One HGET per block: a missing block is false here, but would end the list of unpack(HMGET).
local last_block = start < first_seq and math.floor((math.min(stop, first_seq) - 2) / block_count) or -1
for block = first_block, last_block do
  reply[#reply + 1] = redis.call('HGET', originals, block)
end
reply[5] = #reply - 6
local from, to = math.max(start, first_seq) - first_seq, stop - 1 - first_seq
if hidden ~= '' then from, to = 0, -1 end -- [hidden]
if from <= to or hidden ~= '' then
  for _, element in ipairs(redis.call('LRANGE', messages, from, to)) do reply[#reply + 1] = element end
end
if hidden ~= '' then reply[#reply + 1] = tonumber(total) end
return reply

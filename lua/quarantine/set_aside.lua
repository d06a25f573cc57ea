-- Moves keys into quarantine, or one field of a hash, if the head is still as the caller read it. The caller decides whether
-- they are unreadable. A session or record starts afresh then, and an operator can inspect the copy. The arguments end with
-- the fields to remove from the head, if only the field moves.
-- KEYS
--   head   hash that tells one life from another, or has the field that moves
--   note   tells of each copy; then each key and its copy, the indexes, and the keys to remove
-- ARGV
--   member       in the indexes
--   put_ms       time of the copy in the note
--   pair_count   number of keys that have a copy
--   index_count  number of indexes
--   about        what the note tells of the copy
--   kind         type of the head as read
--   field        of the head
--   seen         its value as read; empty for none
--   kept_ms      time to live of keys without one
-- FIELDS
-- REPLY 1 moved, 0 changed or gone
-- ERROR
local head, note = unpack(KEYS, 1, 2)
local member, put_ms, pair_count, index_count, about, kind, field, seen, kept_ms = unpack(ARGV, 1, 9)
local first_index = 3 + 2 * pair_count
local first_removed = first_index + index_count
if redis.call('TYPE', head).ok ~= kind then return 0 end -- [type as it was read]
if kind == 'hash' and (redis.call('HGET', head, field) or '') ~= seen then return 0 end -- [as it was read]
local found, last_ms = {}, 0
for place = 3, first_index - 1, 2 do
  if redis.call('EXISTS', KEYS[place]) == 1 then found[#found + 1] = place end
end
if #found == 0 then return 0 end -- [nothing]
-- Removals first: the rest then passes if Redis is out of memory.
for place = first_index, first_removed - 1 do redis.call('ZREM', KEYS[place], member) end -- [not listed]
redis.call('HSET', note, put_ms, about) -- [noted]
for _, place in ipairs(found) do
  local key, copy = KEYS[place], KEYS[place + 1]
  if #ARGV > 9 then
    redis.call('HSET', copy, field, seen) -- [quarantined]
    redis.call('PEXPIRE', copy, kept_ms)
    redis.call('HDEL', head, unpack(ARGV, 10)) -- [gone from here]
  else
    if redis.call('PTTL', key) < 0 then redis.call('PEXPIRE', key, kept_ms) end -- [expires]
    redis.call('RENAME', key, copy) -- [moved]
  end
  last_ms = math.max(last_ms, redis.call('PEXPIRETIME', copy))
end
redis.call('PEXPIREAT', note, math.max(last_ms, redis.call('PEXPIRETIME', note))) -- [note expires]
for place = first_removed, #ARGV == 9 and #KEYS or 0 do redis.call('DEL', KEYS[place]) end -- [removed]
return 1

-- Moves a copy back from quarantine, as the caller has read and mended it; refused if there is a new session or record in its
-- place. A key of a foreign type stays in quarantine. After the arguments come the score in each index, - for none, fields of
-- the head to set with their values, and fields to remove from it.
-- KEYS
--   head   hash that tells one life from another
--   note   tells of each copy; then each key and its copy, first the head, the indexes, and the keys to remove
-- ARGV
--   member       in the indexes
--   put_ms       time of the copy in the note
--   pair_count   number of keys that have a copy
--   index_count  number of indexes
--   field        of the head
--   mark         part of its value after this restoration, and of no other life
--   expires_ms   of the keys; 0 lets them persist, - leaves their time to live
--   types        of the keys, each after a blank
--   set_count    number of fields to set
-- FIELDS
-- REPLY 1 restored now or before, 0 not in quarantine
-- ERROR LIVE key
local head, note = unpack(KEYS, 1, 2)
local member, put_ms, pair_count, index_count, field, mark, expires_ms, types, set_count = unpack(ARGV, 1, 9)
local first_index, first_set = 3 + 2 * pair_count, 10 + index_count
local first_removed, first_drop = first_index + index_count, first_set + 2 * set_count
local is_live, pairs_found, is_left = false, {}, false
for type in string.gmatch(types, '%a+') do
  local key, copy = unpack(KEYS, 3 + 2 * #pairs_found, 4 + 2 * #pairs_found)
  is_live = is_live or redis.call('EXISTS', key) == 1
  pairs_found[#pairs_found + 1] = {key = key, copy = copy, is_sound = redis.call('TYPE', copy).ok == type}
end
local first = pairs_found[1]
if is_live then
  -- This restoration has run before, if it has left no copy of the head.
  local value = redis.call('TYPE', head).ok == 'hash' and redis.call('HGET', head, field) or ''
  if first.is_sound or not string.find(value, mark, 1, true) then return redis.error_reply('LIVE key') end -- [live]
elseif not first.is_sound then return 0 end -- [fields]
-- No copy has this time. A script that has removed something may continue when memory is short, and the move needs none.
redis.call('HDEL', note, '') -- [full memory]
for at = 0, index_count - 1 do
  local index, score = KEYS[first_index + at], ARGV[10 + at]
  if score == '-' then redis.call('ZREM', index, member) else redis.call('ZADD', index, score, member) end -- [listed]
end
for place = first_removed, #KEYS do redis.call('DEL', KEYS[place]) end -- [removed]
for _, pair in ipairs(pairs_found) do
  local key, copy = pair.key, pair.copy
  if not pair.is_sound then is_left = is_left or redis.call('EXISTS', copy) == 1 else -- [left]
    if expires_ms == '0' then redis.call('PERSIST', copy) end -- [persists]
    if (tonumber(expires_ms) or 0) > 0 then redis.call('PEXPIREAT', copy, expires_ms) end -- [expires]
    redis.call('RENAME', copy, key) -- [moved]
  end
end
-- After the move: a log that was cut replays both, and must not make a copy of these fields alone.
if not is_live and set_count ~= '0' then redis.call('HSET', head, unpack(ARGV, first_set, first_drop - 1)) end -- [set]
if not is_live and first_drop <= #ARGV then redis.call('HDEL', head, unpack(ARGV, first_drop)) end -- [dropped]
if not is_left then redis.call('HDEL', note, put_ms) end -- [no copy left]
return 1

-- Makes one change of a project, all or nothing: new versions of items, their names, and their places in the indexes.
-- The caller may require that other items have not changed, and that indexes have certain sizes.
-- A resent change is recognised by its bytes.
-- A body is a version, a blank, and text that Lua does not parse. The first version of an item is in its body alone, and
-- moves to its versions with the second. An empty body erases the item. A change may add several versions of an item.
-- After counts follow sizes (place of the index, its size), checks (id, version), writes (id, version, place of its
-- versions, body, delta), names (name, holder before, holder), additions (place of the index, score, member) and
-- removals (place, member, place of the vocabulary or 0, word). A place is an index into KEYS.
-- KEYS
--   items
--   names
--   journal   a committed import that must be applied first
--   changes   number of changes so far; then the keys that the arguments name by place
-- ARGV
--   counts   of sizes, checks, writes, names and additions, in one argument
-- FIELDS
-- REPLY 1 made now, 0 made before, -1 an import must be applied first
-- ERROR VERSION id version · NAME id
local items, names, journal, changes = unpack(KEYS, 1, 4)
local counts = ARGV[1]
if redis.call('EXISTS', journal) == 1 then return -1 end -- [an import first]
--- @include project_refusals
-- Only writes follow. Index entries are added first and removed last, and all bodies change in one command in between. A
-- crash may leave surplus index entries, which readers filter out, but never half of a change.
redis.call('HSET', changes, 'count', (tonumber(redis.call('HGET', changes, 'count')) or 0) + 1) -- [counted]
local run = {}
for at = first_add, first_remove - 1, 3 do
  local place, score, member = unpack(ARGV, at, at + 2)
  run[#run + 1], run[#run + 2] = score, member -- [scores]
  if ARGV[at + 3] ~= place or at + 3 == first_remove or #run == 1000 then -- one command per index
    local index = KEYS[tonumber(place)]
    redis.call('ZADD', index, unpack(run)) -- [places taken]
    run = {}
  end
end
for at = first_name, first_add - 1, 3 do
  local name, _, holder = unpack(ARGV, at, at + 2)
  if holder ~= '' then redis.call('HSET', names, name, holder) end -- [name taken]
end
local heads = {}
for at = first_write, first_name - 1, 5 do
  local id, version, place, body, delta = unpack(ARGV, at, at + 4)
  local versions = KEYS[tonumber(place)]
  if body == '' then
    redis.call('HDEL', items, id) -- [erased]
    redis.call('DEL', versions) -- [versions erased]
  else
    heads[#heads + 1], heads[#heads + 2] = id, body
    if version == '2' then redis.call('HSET', versions, 1, string.sub(bodies[id], 3)) end -- [first version]
    bodies[id] = body
    if version ~= '1' then redis.call('HSET', versions, version, delta) end -- [versions]
  end
end
if #heads > 0 then redis.call('HSET', items, unpack(heads)) end -- [bodies]
for at = first_name, first_add - 1, 3 do
  local name, before, holder = unpack(ARGV, at, at + 2)
  if holder == '' and redis.call('HGET', names, name) == before then redis.call('HDEL', names, name) end -- [name left]
end
for at = first_remove, #ARGV, 4 do
  local place, member, vocabulary, word = unpack(ARGV, at, at + 3)
  local index, words = KEYS[tonumber(place)], KEYS[tonumber(vocabulary)]
  redis.call('ZREM', index, member) -- [places left]
  if words and redis.call('EXISTS', index) == 0 then redis.call('ZREM', words, word) end -- [vocabulary]
end
return 1

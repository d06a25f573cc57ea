-- Carries out one change of a project: new versions of some items, their names, and their places in the indexes, or
-- nothing. Other items may be named that must not have changed either, and indexes that must be as large as they were.
-- It is known by its bytes when it is sent again.
-- A body is a version, a blank, and what Lua does not open. The first version of an item stands in its body alone, and
-- moves to its versions with the second. An empty body erases the item. An item may have several versions in a change.
-- Behind counts stand, for each of them, a size (place of the index, its size), a check (id, version), a write (id,
-- version, place of its versions, body, delta), a name (name, holder before, holder), an addition (place of the index,
-- score, member), a removal (place, member, place of the vocabulary or 0, word). A place is a number among KEYS.
-- KEYS
--   items
--   names
--   journal   of an import that is to be carried out first
--   changes   how many there were; then the keys that the arguments name by their place
-- ARGV
--   counts   of sizes, checks, writes, names and additions: one argument
-- FIELDS
-- REPLY 1 if it was made now, 0 if it was made before, -1 if an import is to be carried out first
-- ERROR VERSION id version · NAME id
local items, names, journal, changes = unpack(KEYS, 1, 4)
local counts = ARGV[1]
if redis.call('EXISTS', journal) == 1 then return -1 end -- [an import first]
--- @include project_refusals
-- From here on only writes. Places are taken first and left last, all bodies change in one command between them: what
-- a crash cuts off leaves places too many, which readers see through, and never half of a change.
redis.call('HSET', changes, 'count', (tonumber(redis.call('HGET', changes, 'count')) or 0) + 1) -- [counted]
local run = {}
for at = first_add, first_remove - 1, 3 do
  local place, score, member = unpack(ARGV, at, at + 2)
  run[#run + 1], run[#run + 2] = score, member -- [scores]
  if ARGV[at + 3] ~= place or at + 3 == first_remove or #run == 1000 then -- those of one index in one command
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

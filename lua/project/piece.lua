-- Carries out one piece of an import, unless somebody has. Its writes set and take away and do not add: half of them,
-- which a crash may leave, and then all of them come to the same. Nobody reads the project meanwhile.
-- A write is the word of a command, the place of its key among KEYS, how many arguments it has, and these.
-- KEYS
--   journal   piece -> the writes that it consists of; then the keys that the writes name by their place
-- ARGV
--   piece     then the writes, one after the other
-- FIELDS
-- REPLY 1 if it was carried out now, 0 if it was before
-- ERROR
local journal = unpack(KEYS, 1, 1)
local piece = unpack(ARGV, 1, 1)
if redis.call('HEXISTS', journal, piece) == 0 then return 0 end -- [once]
local at = 2
while at <= #ARGV do
  local word, place, count = unpack(ARGV, at, at + 2)
  local key, first, last = KEYS[tonumber(place)], at + 3, at + 2 + count
  at = last + 1
  if word == 'ZADD' then redis.call('ZADD', key, unpack(ARGV, first, last)) end -- [places taken]
  if word == 'ZREM' then redis.call('ZREM', key, unpack(ARGV, first, last)) end -- [places left]
  if word == 'HSET' then redis.call('HSET', key, unpack(ARGV, first, last)) end -- [set]
  if word == 'HDEL' then redis.call('HDEL', key, unpack(ARGV, first, last)) end -- [taken away]
  if word == 'DEL' then redis.call('DEL', key) end -- [erased]
end
redis.call('HDEL', journal, piece) -- [done]
return 1

-- Applies one piece of an import, once. Its writes only set and remove, so a piece cut off by a crash can be applied
-- again from its start. Reads of the project are refused meanwhile.
-- A write is a command, the place of its key in KEYS, the number of its arguments, and the arguments.
-- KEYS
--   journal   piece -> its writes; then the keys that the writes name by place
-- ARGV
--   piece     its number; then its writes
-- FIELDS
-- REPLY 1 applied now, 0 applied before
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

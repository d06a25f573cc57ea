-- Reads types, expiry and sizes of keys, and fields of the first one, at one moment. It tells whether a session or record is
-- readable, and describes a copy in quarantine.
-- KEYS
--   head   then the other keys
-- ARGV
-- FIELDS
-- REPLY of each key its type, expiry and size, 0 for one that has none; then the fields named by ARGV, if the head is a hash
-- ERROR
local commands, reply = {list = 'LLEN', hash = 'HLEN', zset = 'ZCARD'}, {}
local head = KEYS[1]
for place, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  reply[place] = {kind, redis.call('PEXPIRETIME', key), commands[kind] and redis.call(commands[kind], key) or 0}
end
reply[#KEYS + 1] = reply[1][1] == 'hash' and redis.call('HMGET', head, unpack(ARGV)) or {}
return reply

-- Makes a staged import the journal of its project, if nothing has changed since the import was thought out. From then
-- on it counts: whoever comes next carries out its pieces first. It is known by its nonce when it is sent again.
-- KEYS
--   staged    piece -> the writes that it consists of
--   journal   the same, of an import that counts, and is not carried out yet
--   changes   how many there were, and the nonce of the last import
-- ARGV
--   seen      how many changes there were when the project was read; empty for none
--   nonce     the import's
-- FIELDS
-- REPLY 1 if it counts now, 0 if it counted before, -1 if another one is to be carried out first
-- ERROR VERSION id version
local staged, journal, changes = unpack(KEYS)
local seen, nonce = unpack(ARGV)
local found = redis.call('HMGET', changes, 'count', 'imported')
local count, is_mine = found[1] or '', found[2] == nonce
local following = tostring((tonumber(seen) or 0) + 1)
if redis.call('EXISTS', staged) == 0 then
  if is_mine then return 0 end -- [counted before]
  return redis.error_reply('VERSION - 1') -- [staged for too long]
end
if redis.call('EXISTS', journal) == 1 then return -1 end -- [one at a time]
if count ~= seen and not (is_mine and count == following) then -- [nothing has changed]
  return redis.error_reply('VERSION - 1')
end
redis.call('HSET', changes, 'count', following, 'imported', nonce) -- [noted]
redis.call('PERSIST', staged) -- [kept]
redis.call('RENAME', staged, journal)
return 1

-- Commits a staged import: makes it the journal of its project, if the project has not changed since it was read. Any
-- process then applies the pieces before anything else. A resent commit is recognised by its nonce.
-- KEYS
--   staged    piece -> its writes
--   journal   pieces of a committed import that are not applied yet
--   changes   number of changes so far, and the nonce of the last import
-- ARGV
--   seen      number of changes when the project was read; empty means 0
--   nonce     of the import
-- FIELDS
-- REPLY 1 committed now, 0 committed before, -1 another import must be applied first
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

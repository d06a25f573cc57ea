-- Reads the state that an append needs: the epoch only if the reply or expect needs it, because each field costs time.
-- Refuses a session that has another owner than the caller names, or none.
-- READS messages state expect limits
-- SETS counters ids resent epoch created
local counters, ids, resent, epoch = nil, nil, nil, nil
if string.find(limits, '@', 1, true) then
  local owner = nil
  counters, ids, resent, epoch, owner = unpack(redis.call('HMGET', state, 'counters', 'ids_a', 'resent', 'epoch', 'owner'))
  if (owner or counters) and owner ~= string.match(limits, '@(.*)$') then return redis.error_reply('OWNER other') end -- [same owner]
elseif expect == '-' then
  counters, ids, resent = unpack(redis.call('HMGET', state, 'counters', 'ids_a', 'resent'))
else
  counters, ids, resent, epoch = unpack(redis.call('HMGET', state, 'counters', 'ids_a', 'resent', 'epoch'))
end
local created = not counters
if created and redis.call('EXISTS', messages, state) > 0 then return redis.error_reply('CORRUPT no counters') end
counters, ids = counters or 'v1 1 0 0 0 0' .. (string.match(limits, '^[%d%s-]+(~%w+)') or ''), ids or 'b' -- [first write]

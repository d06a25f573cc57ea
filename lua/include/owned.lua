-- Lists a session in the index of owners if its state has an owner, and only then.
-- READS owners owner session
-- SETS score is_relisted
local score, is_relisted = string.match(owner or '', '^%d+'), false
if score and not redis.call('ZSCORE', owners, session) then
  redis.call('ZADD', owners, score, session)
  is_relisted = true
elseif not score then
  is_relisted = redis.call('ZREM', owners, session) == 1
end

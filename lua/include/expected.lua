-- Refuses an append to a session that is not as the caller saw it: cleared since, or with another last seq.
-- READS expect epoch total
-- SETS
if expect ~= '-' then
  local expected_seq, expected_epoch = string.match(expect, '^(%d*)@?(.*)$')
  if expected_epoch ~= '' and expected_epoch ~= epoch then return redis.error_reply('CONFLICT ' .. total .. ' cleared') end -- [this life]
  if expected_seq ~= '' and tonumber(expected_seq) ~= tonumber(total) then return redis.error_reply('CONFLICT ' .. total) end -- [last seq]
end

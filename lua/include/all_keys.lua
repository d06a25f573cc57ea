-- Refuses an append that has only the first four keys and needs others: to begin a session, to take it off the eviction
-- queue, to list its expiry there, or to move the expiry of originals and vectors.
-- READS fences created evicting is_watched window_first_seq policy
-- SETS has_originals
local has_originals = window_first_seq ~= '1' or policy ~= '' and string.find(policy, 'b', 1, true) ~= nil -- [bodies]
if not fences and (created or evicting ~= '' or is_watched or has_originals) then -- [all keys]
  return redis.error_reply('KEYS all')
end

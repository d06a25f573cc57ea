-- Removes the log of the last turn, which may quote what an edit removes. A running turn keeps its log, unless the edit
-- ends the turn: its writer then finds that it is lost.
-- READS state live turns session log
-- SETS
if log ~= '-' then
  local is_running = string.sub(redis.call('HGET', state, 'turn') or '', 1, 2) == 'r '
  if log == 'lost' and is_running then -- [ends it]
    redis.call('ZREM', turns, session)
    redis.call('HDEL', state, 'turn', 'stop', 'doubt')
  end
  if log == 'lost' or not is_running then redis.call('DEL', live) end -- [what was told]
end

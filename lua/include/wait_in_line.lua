-- Refuses a turn while another one runs, or waits before it. A turn with a ticket gets a place in the line of waiting turns,
-- or keeps the one that it has: a place that was not renewed for five seconds lapses.
-- READS waiters turns session now status seen_generation ticket places_limit
-- SETS places before has_place is_running
local places, before, has_place = {}, 0, false
for place, seen_ms in string.gmatch(redis.call('GET', waiters) or '', '(%x+) (%d+)') do
  if place == ticket then
    has_place, before = true, #places
  elseif now - seen_ms < 5000 then -- [lapsed]
    places[#places + 1] = place .. ' ' .. seen_ms
  end
end
if not has_place then before = #places end
local is_running = status == 'r'
if is_running or before > 0 then
  local left_ms = is_running and math.max(0, (redis.call('ZSCORE', turns, session) or 0) - now) or 0
  local rest = string.format('%s %d %d', is_running and seen_generation or '-', left_ms, before)
  if ticket == '-' then return redis.error_reply('TURN busy ' .. rest) end
  if not has_place and #places >= tonumber(places_limit) then return redis.error_reply('TURN full ' .. rest) end -- [full]
  table.insert(places, before + 1, string.format('%s %d', ticket, now)) -- [in order]
  redis.call('SET', waiters, table.concat(places, ','), 'PX', 10000) -- [seen]
  return redis.error_reply('TURN busy ' .. rest)
end

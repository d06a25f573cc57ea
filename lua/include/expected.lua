-- Refuses an append to a session that is not as the caller saw it: cleared since, with another last seq, or with another
-- newest append of this seq, because Redis went back to an older snapshot and took others. An append that many changes of
-- the state have pushed out of the ring is not compared.
-- READS expect epoch total state ids
-- SETS
if expect ~= '-' then
  local expected_seq, expected_epoch, expected_append = string.match(expect, '^(%d*)@?([^/]*)/?(%x*)$')
  if expected_epoch ~= '' and expected_epoch ~= epoch then return redis.error_reply('CONFLICT ' .. total .. ' cleared') end -- [this life]
  if expected_seq ~= '' and tonumber(expected_seq) ~= tonumber(total) then return redis.error_reply('CONFLICT ' .. total) end -- [last seq]
  if expected_append ~= '' then
    --- @include append_ring
    local at = #ring - 11
    while at > 0 and string.byte(ring, at + 10) % 128 + string.byte(ring, at + 11) == 0 do at = at - 12 end
    local newest = string.gsub(string.sub(ring, at, at + #expected_append / 2 - 1), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
    if at > 0 and newest ~= expected_append then return redis.error_reply('CONFLICT ' .. total) end -- [newest append]
  end
end

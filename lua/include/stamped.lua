-- Stamps the messages of an append, and adds the large ones to those of the window. `heavy` becomes '!' if their bytes pass
-- another quarter of the limit, beyond the first half.
-- READS state stamp first_message first_set limits change elements heavy
-- SETS more_large
local more_large = 0
for at = first_message, first_set - 1 do
  elements[#elements + 1] = ARGV[at] .. stamp
  if #ARGV[at] > 4087 then more_large = more_large + #ARGV[at] + 9 end
end
if more_large > 0 then
  local large_before = tonumber(redis.call('HGET', state, 'large_bytes') or 0) or 0
  local large_bytes = large_before + more_large
  change('large_bytes', string.format('%d', large_bytes))
  local bytes_limit = string.match(limits, '%S+ %S+ %S+ %d+ %d+ %d+ (%d+)')
  local quarter = bytes_limit / 4
  if large_bytes > 2 * quarter and math.floor(large_bytes / quarter) > math.floor(large_before / quarter) then heavy = '!' end
end

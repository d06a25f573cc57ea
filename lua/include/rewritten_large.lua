-- Notes the bytes of the window's large messages after a rewrite.
-- READS messages state kept_count length first_message first_set change
-- SETS first_leaving last_leaving large_before large_bytes
local first_leaving, last_leaving = tonumber(kept_count), length - 1
--- @include large_left
for at = 19, first_set - 1 do
  local size = #ARGV[at] + (at < first_message and 0 or 9)
  if size > 4096 then large_bytes = large_bytes + size end
end
if large_bytes ~= large_before then change('large_bytes', string.format('%d', large_bytes)) end

-- Notes the bytes of the window's large messages after a rewrite. Refuses if they grow beyond the limit.
-- READS messages state limits kept_count length first_message first_set change
-- SETS first_leaving last_leaving large_before large_bytes bytes_limit
local first_leaving, last_leaving = tonumber(kept_count), length - 1
--- @include large_left
for at = 18, first_set - 1 do
  local size = #ARGV[at] + (at < first_message and 0 or 9)
  if size > 4096 then large_bytes = large_bytes + size end
end
--- @include large_limit

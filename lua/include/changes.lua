-- Collects the fields that the caller sets, with values. Refuses if the session would hold too many params.
-- READS state first_set first_drop set_count limits
-- SETS changes
local changes = {}
for at = first_set, first_drop - 1 do changes[#changes + 1] = ARGV[at] end
if #changes > 0 then
  local params_limit = string.match(limits, '%S+ %S+ %S+ %d+ %d+ (%d+)')
  if redis.call('HLEN', state) + set_count > tonumber(params_limit) then
    local fields, params = {}, 0
    for _, field in ipairs(redis.call('HKEYS', state)) do fields[field] = true end
    for at = 1, #changes, 2 do fields[changes[at]] = true end
    for at = first_drop, #ARGV do fields[ARGV[at]] = nil end
    for field in pairs(fields) do params = params + (string.find(field, '^param:') or 0) end
    if params > tonumber(params_limit) then return redis.error_reply('PARAMS ' .. params) end
  end
end

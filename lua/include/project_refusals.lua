-- Refuses a change if versions, names or index sizes are not as expected. Returns 0 if it was made before.
-- READS items names counts
-- SETS size_count check_count write_count name_count add_count first_check first_write first_name first_add first_remove bodies reached is_known stale
local size_count, check_count, write_count, name_count, add_count =
  string.match(counts, '(%d+) (%d+) (%d+) (%d+) (%d+)')
local first_check = 2 + 2 * size_count
local first_write = first_check + 2 * check_count
local first_name = first_write + 5 * write_count
local first_add = first_name + 3 * name_count
local first_remove = first_add + 3 * add_count
local function version_of(body) return body and tonumber(string.match(body, '^%d+')) or 0 end
local bodies, reached, is_known, stale = {}, {}, tonumber(write_count) > 0, nil
for at = first_write, first_name - 1, 5 do
  local id, version, place, body, delta = unpack(ARGV, at, at + 4)
  local versions = KEYS[tonumber(place)]
  local found = redis.call('HGET', items, id)
  local found_version = version_of(found)
  bodies[id] = found
  local made = found == body or (body == '' and not found)
  if found_version > tonumber(version) and body ~= '' then
    made = redis.call('HGET', versions, version) == (version == '1' and string.sub(body, 3) or delta) -- [made earlier]
  end
  if not made then is_known = false end -- [made before]
  found_version = reached[id] or found_version
  if not made and found_version ~= version - 1 then stale = stale or id .. ' ' .. found_version end -- [version]
  reached[id] = body == '' and 0 or tonumber(version) -- [one after the other]
end
if is_known then return 0 end
for at = 2, first_check - 1, 2 do
  local index = KEYS[tonumber(ARGV[at])]
  if redis.call('ZCARD', index) ~= tonumber(ARGV[at + 1]) then stale = stale or '- 1' end -- [size]
end
for at = first_check, first_write - 1, 2 do
  local found_version = version_of(redis.call('HGET', items, ARGV[at]))
  if found_version ~= tonumber(ARGV[at + 1]) then stale = stale or ARGV[at] .. ' ' .. found_version end -- [unchanged]
end
if stale then return redis.error_reply('VERSION ' .. stale) end
for at = first_name, first_add - 1, 3 do
  local name, before, holder = unpack(ARGV, at, at + 2)
  local found = redis.call('HGET', names, name)
  if found and found ~= before and found ~= holder and redis.call('HEXISTS', items, found) == 1 then -- [name]
    return redis.error_reply('NAME ' .. found)
  end
end

-- Finds a page of the items that are in all given groups of indexes, greatest first. The cost grows with the smallest
-- group or with the page, whichever is smaller; not with the stored data.
-- A group is a list of indexes, of which an item must be in one; or a single index with bounds of the item's score.
-- KEYS
--   items
--   order   every item by its place in the order, also its score in groups without bounds; then the groups
-- ARGV
--   request      limit examine_limit lookup_limit sort_limit: most items to find, examine, look up in indexes, sort
--   after_score  of the last item of the previous page, or greater than any score
--   after_id     - for the first page; then for each group: number of indexes, least and greatest score, - - without bounds
-- FIELDS
-- REPLY score and id to continue from, '' '' at the end; then id and body of each item
-- ERROR
local items, order = unpack(KEYS, 1, 2)
local request, after_score, after_id = unpack(ARGV, 1, 3)
local limit, examine_limit, lookup_limit, sort_limit = string.match(request, '(%d+) (%d+) (%d+) (%d+)')
local lookups = 0
local groups, smallest, first = {}, nil, 3
for at = 4, #ARGV, 3 do
  local group = {first = first, last = first + ARGV[at] - 1, min = ARGV[at + 1], max = ARGV[at + 2], count = 0}
  for place = group.first, group.last do
    local count = group.min == '-' and redis.call('ZCARD', KEYS[place])
      or redis.call('ZCOUNT', KEYS[place], group.min, group.max)
    group.count = group.count + count
  end
  first, groups[#groups + 1] = group.last + 1, group
  local is_able = group.min == '-' or group.count <= tonumber(sort_limit)
  if is_able and (not smallest or group.count < smallest.count) then smallest = group end -- [smallest]
end
local function comes_before(score, id, other_score, other_id)
  return score > other_score or (score == other_score and id > other_id)
end
local function belongs(id)
  for _, group in ipairs(groups) do
    local is_in = group == smallest
    for place = group.first, is_in and 0 or group.last do
      lookups = lookups + 1
      local score = redis.call('ZSCORE', KEYS[place], id)
      is_in = is_in or score and (group.min == '-'
        or tonumber(score) >= tonumber(group.min) and tonumber(score) <= tonumber(group.max)) -- [bounds]
    end
    if not is_in then return false end -- [in every group]
  end
  return true
end
local after = tonumber(after_score)
local sources = {}
--- @include project_sources
local found, examined, last_score, last_id = {}, 0, '', ''
while #found < tonumber(limit) and examined < tonumber(examine_limit) and lookups < tonumber(lookup_limit) do
  lookups = lookups + #sources / 8
  local score, id = next_item()
  if not id then break end
  if id ~= last_id and comes_before(after, after_id, tonumber(score), id) then -- [behind the page before]
    examined = examined + 1
    if belongs(id) then found[#found + 1] = id end
  end
  last_score, last_id = score, id
end
local reply = {'', ''}
if not is_exhausted() then reply = {last_score, last_id} end -- [goes on]
if #found == 0 then return reply end
for at, body in ipairs(redis.call('HMGET', items, unpack(found))) do
  reply[#reply + 1], reply[#reply + 2] = found[at], body
end
return reply

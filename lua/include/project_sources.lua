-- Iterates over the items of the smallest group, greatest first, from the end of the previous page.
-- READS sources smallest order after after_score after_id comes_before
-- SETS above chunk
local above = '(' .. after_score
if smallest.min == '-' then
  for place = smallest.first, smallest.last do
    local score = redis.call('ZSCORE', KEYS[place], after_id)
    local at = score and tonumber(score) == after and redis.call('ZREVRANK', KEYS[place], after_id) + 1
      or redis.call('ZCOUNT', KEYS[place], above, '+inf')
    local source, page = {}, {}
    source.place, source.at, source.page, source.nth, source.is_done = place, at, page, 1, false
    sources[#sources + 1] = source
  end
else
  local sorted, page, place = {}, {}, smallest.first
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[place], smallest.min, smallest.max)) do
    local score = redis.call('ZSCORE', order, id)
    if score then sorted[#sorted + 1] = {score, id} end
  end
  table.sort(sorted, function(a, b) return comes_before(tonumber(a[1]), a[2], tonumber(b[1]), b[2]) end)
  for _, pair in ipairs(sorted) do page[#page + 1], page[#page + 2] = pair[2], pair[1] end
  local source = {}
  source.page, source.nth, source.is_done = page, 1, true
  sources[1] = source
end
local chunk = math.max(8, math.floor(256 / math.max(#sources, 4)))
local function fill(source)
  if source.nth > #source.page and not source.is_done then
    local place = source.place
    source.page = redis.call('ZRANGE', KEYS[place], source.at, source.at + chunk - 1, 'REV', 'WITHSCORES')
    source.at, source.nth, source.is_done = source.at + chunk, 1, #source.page < 2 * chunk
  end
  return source.nth <= #source.page
end
local function next_item()
  local best, score, id = nil, nil, nil
  for _, source in ipairs(sources) do
    if fill(source) then
      local its_id, its_score = source.page[source.nth], source.page[source.nth + 1]
      if not best or comes_before(tonumber(its_score), its_id, tonumber(score), id) then
        best, score, id = source, its_score, its_id
      end
    end
  end
  if best then best.nth = best.nth + 2 end
  return score, id
end
local function is_exhausted()
  for _, source in ipairs(sources) do
    if fill(source) then return false end
  end
  return true
end

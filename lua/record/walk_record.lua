-- Follows the parents of a member, and collects on the way: heads, and for each trace the members and fields of a range
-- whose beginning derives from the member, until a head names a field of the trace that has a value, its seed.
-- After `traces` come of each trace: the beginning of the names of its seeds, and the beginning of the values that it
-- collects.
-- KEYS
--   record
--   order
-- ARGV
--   start          the first member
--   skips_start    1 or 0: 1 collects nothing of the first member
--   limit          most members to visit
--   budget_bytes   no further member once the reply is larger, or 20,000 fields were looked at
--   with_heads     1 or 0
--   prefix_size    bytes of the member before the part that the ranges take over
--   range_prefix
--   range_suffix
--   range_end      the least suffix greater than every beginning with range_suffix
--   range_limit    most members of one range
--   named          the owner that the record must have, as its description contains it; empty for any
--   traces         places of the traces that are still open, each followed by a comma
-- FIELDS
-- REPLY next member to visit, or nothing at the end; number of visited members; places of the traces that are still open;
--   then what was collected, in threes: 0 and a head, or the place of a trace and a member of its range, or its negative
--   and the seed; each with its value
-- ERROR FORMAT version · CORRUPT description · OWNER other · WIDE limit
local record, order = unpack(KEYS)
local start, skips_start, limit, budget_bytes, with_heads, prefix_size, range_prefix, range_suffix,
  range_end, range_limit, named, traces = unpack(ARGV, 1, 12)
--- @include record_format
local reply, size, count, visited, member, open = {'', 0, ''}, 0, 0, 0, start, {}
for place in string.gmatch(traces, '(%d+),') do open[#open + 1] = tonumber(place) end
local follows_all = #open == 0
local function put(kind, name, value)
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = kind, name, value
  size = size + #name + (value and #value or 0)
end
while member ~= '' and visited < tonumber(limit) and size <= tonumber(budget_bytes) and count <= 20000 do
  local head = redis.call('HGET', record, member)
  if not head then member = '' break end -- [end of the chain]
  --- @include record_head
  local still_open = {}
  if visited == 0 and skips_start == '1' then still_open = open else -- [start]
    if with_heads == '1' then put(0, member, head) end
    local beginning, range, values = range_prefix .. string.sub(member, prefix_size + 1), {}, {}
    if #open > 0 then
      range = redis.call('ZRANGE', order, '[' .. beginning .. range_suffix, '(' .. beginning .. range_end, 'BYLEX',
        'LIMIT', 0, range_limit + 1)
      if #range > tonumber(range_limit) then return redis.error_reply('WIDE ' .. range_limit) end
    end
    count = count + #names + #range
    for at, name in ipairs(range) do values[at] = redis.call('HGET', record, name) or '' end
    for _, place in ipairs(open) do
      local seed_prefix, value_prefix = unpack(ARGV, 11 + 2 * place, 12 + 2 * place)
      for at, name in ipairs(range) do
        if string.sub(values[at], 1, #value_prefix) == value_prefix then put(place, name, values[at]) end -- [traced]
      end
      local seed, value = nil, nil
      for _, name in ipairs(names) do
        if string.sub(name, 1, #seed_prefix) == seed_prefix then
          value = redis.call('HGET', record, name)
          if value and value ~= '' then seed = name break end -- [seed]
        end
      end
      if seed then put(-place, seed, value) else still_open[#still_open + 1] = place end
    end
  end
  visited, open, member = visited + 1, still_open, parent or ''
  if #open == 0 and not follows_all then member = '' end -- [all seeds]
end
local left = {}
for at, place in ipairs(open) do left[at] = place .. ',' end
reply[1], reply[2], reply[3] = member, visited, table.concat(left)
return reply

-- Keeps the append ids that leave the ring, if several memories append: a memory has at most 12 appends under way, but
-- others may make any number before it resends one. A byte of the token stands for the memory; two of one process differ.
-- The field `ids:` and this byte holds the 24 newest of its ids that left, each with its last seq in 12 digits. The field
-- `others` holds the times of the last three turns of the ring, 13 digits each, and a byte for each memory with such a
-- field, at most 24. Ids that are a minute old go.
-- An empty field `resent` tells later appends to look at these, so a memory alone costs nothing.
-- READS ids token counters state now change resent
-- SETS own byte is_alone
local own, byte = string.byte(token, 8), string.byte
local is_alone = byte(ids, 9) == own and byte(ids, 21) == own and byte(ids, 33) == own and byte(ids, 45) == own and byte(ids, 57) == own
if resent or not is_alone then -- [several memories]
  local others = redis.call('HGET', state, 'others')
  if not resent then change('resent', '') end -- [looked for]
  local turned_ms, processes = string.sub(others or '', 1, 39), string.sub(others or '', 40)
  local kept, gone = '', processes
  if #turned_ms < 39 or now - string.sub(turned_ms, 27) <= 60000 then -- [young]
    --- @include append_ring
    local last_seq, left = tonumber(string.match(counters, '^%S+ %d+ (%d+)')), {}
    for at = #ring - 11, 1, -12 do
      local process, high, low = string.sub(ring, at + 7, at + 7), string.byte(ring, at + 10, at + 11)
      if at <= #ring - 180 then -- [behind the last 15]
        left[process] = string.sub(ring, at, at + 11) .. string.format('%012d', last_seq) .. (left[process] or '')
      end
      last_seq = last_seq - (high % 128) * 256 - low -- [seq]
    end
    for process, more in pairs(left) do
      local older_ids = 'ids:' .. string.byte(process)
      change(older_ids, string.sub((redis.call('HGET', state, older_ids) or '') .. more, -576)) -- [left]
      local at = string.find(processes, process, 1, true)
      processes = process .. (at and string.sub(processes, 1, at - 1) .. string.sub(processes, at + 1) or processes)
    end
    kept, gone = string.sub(processes, 1, 24), string.sub(processes, 25)
  end
  for process in string.gmatch(gone, '.') do
    local older_ids = 'ids:' .. string.byte(process)
    redis.call('HDEL', state, older_ids) -- [gone]
  end
  change('others', string.sub(string.format('%013d', now) .. turned_ms, 1, 39) .. kept)
end

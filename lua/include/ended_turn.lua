-- Finds a turn among those that have ended: `records` are all of this epoch, `record_at` is the place of the turn's, which is
-- nil if it has not ended. A record has 16 bytes: 7 name the turn, 5 are the first seq, 3 the last seq less the first, 1 flags.
-- READS turned epoch name
-- SETS records name_bytes record_at
local records = redis.call('GET', turned) or ''
if string.sub(records, 1, 16) ~= string.match(epoch or '', '%-(.*)$') then records = '' end -- [this life]
local name_bytes = string.gsub(name, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
local record_at = string.find(records, name_bytes, 17, true)
while record_at and record_at % 16 ~= 1 do record_at = string.find(records, name_bytes, record_at + 1, true) end -- [a name]

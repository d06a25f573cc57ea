-- Notes a turn that has ended, see ended_turn.lua. If the session keeps no originals, it keeps the newest 64 once there are
-- more than 96.
-- READS turned epoch seen_name seen_first_seq total flags with_originals
-- SETS first_seq span record life turned_bytes
local first_seq, span = tonumber(seen_first_seq), math.max(0, total - seen_first_seq)
local record = string.gsub(seen_name, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
  .. string.char(math.floor(first_seq / 2^32) % 256, math.floor(first_seq / 2^24) % 256, math.floor(first_seq / 2^16) % 256,
    math.floor(first_seq / 256) % 256, first_seq % 256, math.floor(span / 2^16) % 256, math.floor(span / 256) % 256,
    span % 256, flags)
local life, turned_bytes = string.match(epoch, '%-(.*)$'), redis.call('STRLEN', turned)
if redis.call('GETRANGE', turned, 0, 15) ~= life then
  redis.call('SET', turned, life .. record) -- [of an earlier life]
elseif with_originals == '0' and turned_bytes >= 16 + 96 * 16 then
  redis.call('SET', turned, life .. redis.call('GETRANGE', turned, -63 * 16, -1) .. record) -- [newest]
else
  redis.call('SETRANGE', turned, turned_bytes, record) -- [once]
end

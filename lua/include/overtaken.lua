-- Refuses a sending that a resent one of its memory has overtaken: its connection was lost, and its bytes came late. A
-- resent one sets the new value of the field that tells: itself, then the last resent one of each of 15 other memories.
-- Six bytes of a sending name the memory, six count its sendings; their top bit is set if the call was sent before.
-- READS resent sending
-- SETS overtaking
if sending then
  local process, others = string.sub(sending, 1, 6), resent or ''
  local at = resent and string.find(resent, process, 1, true)
  while at and at % 12 ~= 1 do at = string.find(resent, process, at + 1, true) end
  if at then
    local function number(a, b, c, d, e, f) return ((((a % 128 * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f end
    if number(string.byte(sending, 7, 12)) < number(string.byte(resent, at + 6, at + 11)) then -- [overtaken]
      return redis.error_reply('OVERTAKEN sending')
    end
    others = string.sub(resent, 1, at - 1) .. string.sub(resent, at + 12) -- [once per memory]
  end
  if (string.byte(sending, 7) or 0) >= 128 then -- [overtakes]
    overtaking = sending .. string.sub(others, 1, 180) -- [sixteen]
  end
end

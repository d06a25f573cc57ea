-- Notes a write with conditions among the last 16, and behind these the last 16 of each process for a minute, 255 together:
-- others may make any number of writes before a lost one is resent. An entry is the first seven bytes of its nonce, of
-- which the first names the process, and the minute of the write, modulo 256.
-- READS ring name now_ms
-- SETS ring time now minute process count
--- @include now
local minute = math.floor(now / 60000) % 256
ring = name .. string.char(minute) .. ring
local process, count = string.byte(name), 0
for at = 1, #ring, 8 do
  if string.byte(ring, at) == process then count = count + 1 end
  if count == 17 then ring = string.sub(ring, 1, at - 1) .. string.sub(ring, at + 8) break end -- [of the process]
end
while #ring > 128 and (#ring > 2040 or (minute - string.byte(ring, -1)) % 256 > 1) do ring = string.sub(ring, 1, -9) end -- [old]

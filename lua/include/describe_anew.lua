-- Makes the description of a record after a write: it notes a write with conditions by its nonce, and a resent write by its
-- sending. Refuses a sending that a resent one has overtaken.
-- READS described ring_end nonce now_ms sending birth change is_known
-- SETS birth_end resent overtaking is_known
--- @include record_resent
local overtaking = nil
--- @include overtaken
change.overtaking = overtaking
if change.is_checked or overtaking or not described then
  local ring = string.sub(described or '', 12, ring_end)
  local name = string.sub(nonce, 1, 7)
  local is_noted = change.is_checked and string.find(ring, name, 1, true)
  is_known = is_known or is_noted -- [made before]
  local life = described and string.sub(described, 3, 10) or nonce
  if change.is_checked and not is_noted then
    -- The last 16 writes with conditions stay, and behind these the last 16 of each process for a minute, 255 together: others
    -- may make any number of writes before a lost one is resent. An entry has the first seven bytes of its nonce, of which the
    -- first names the process, and the minute of the write, modulo 256.
    --- @include now
    local minute = math.floor(now / 60000) % 256
    ring = name .. string.char(minute) .. ring
    local process, count = string.byte(name), 0
    for at = 1, #ring, 8 do
      if string.byte(ring, at) == process then count = count + 1 end
      if count == 17 then ring = string.sub(ring, 1, at - 1) .. string.sub(ring, at + 8) break end -- [of the process]
    end
    while #ring > 128 and (#ring > 2040 or (minute - string.byte(ring, -1)) % 256 > 1) do ring = string.sub(ring, 1, -9) end -- [old]
  end
  local noted = overtaking or resent
  change.described_anew = 'v1' .. life .. string.char(#ring / 8) .. ring
    .. (described and string.sub(described, ring_end + 1, birth_end) or birth)
    .. (noted and #noted .. ':' .. noted or '')
end

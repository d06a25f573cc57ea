-- Makes the description of a record after a write: it notes a write with conditions by its nonce, and a resent write by its
-- sending. Refuses a sending that a resent one has overtaken.
-- READS described ring_end nonce now_ms sending birth change is_known
-- SETS birth_end resent overtaking ring name is_noted life noted is_known
--- @include record_resent
local overtaking = nil
--- @include overtaken
change.overtaking = overtaking
local ring = string.sub(described or '', 12, ring_end)
local name = string.sub(nonce, 1, 7)
local is_noted = change.is_checked and string.find(ring, name, 1, true)
is_known = is_known or is_noted -- [made before]
local life = described and string.sub(described, 3, 10) or nonce
if change.is_checked and not is_noted then
  --- @include note_nonce
end
local noted = overtaking or resent
change.described_anew = 'v1' .. life .. string.char(#ring / 8) .. ring
  .. (described and string.sub(described, ring_end + 1, birth_end) or birth)
  .. (noted and #noted .. ':' .. noted or '')

-- Writes records of one shard, all or nothing, if their checks hold. A resent write with checks is recognised by its nonce.
-- After sending come for each record: id; time to live in ms, - to let it persist, or = to leave its expiry alone; score of its owner, or - without one;
-- owner and tag, as a new record stores them; the six counts and the time of update, or - without one; then checks (field; = and its value, * for any value, or
-- nothing for no field), sets (field, value), first-wins sets (field, value), drops (field), additions to the order (0,
-- member) and removals from it (member).
-- KEYS
--   records   the records of the shard
--   owned     its records with an owner
--   updated   its records with a time of update; then hash and order of each record
-- ARGV
--   nonce     identifies this write: a byte of the process and 7 random ones; also the life of a record that it creates
--   now_ms    - for the server's clock
--   sending   12 bytes, as in the token of an append
-- FIELDS
-- REPLY 1 written now, 2 and a record was created, 0 written before; negative: the number of the check that does not hold, over all records
-- ERROR OVERTAKEN sending · FORMAT version · CORRUPT description · OWNER other · PAST now_ms
local records, owned, updated = unpack(KEYS, 1, 3)
local nonce, now_ms, sending = unpack(ARGV, 1, 3)
local changes, is_known, refused, number, first, written = {}, false, nil, 0, 4, 1
for place = 4, #KEYS, 2 do
  local record, order = KEYS[place], KEYS[place + 1]
  local id, ttl_ms, owner, birth, counts = unpack(ARGV, first, first + 4)
  local checks, sets, keeps, drops, adds, removes, updated_us = string.match(counts, '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.+)')
  local change = {record = record, order = order, id = id, owner = owner, updated_us = updated_us}
  -- The birth begins with the owner: its length, a colon and its bytes.
  local named = owner == '-' and '' or string.sub(birth, 1, #string.match(birth, '^%d+:') + string.match(birth, '^%d+'))
  --- @include record_format
  if not described and redis.call('EXISTS', record) == 1 then -- [undescribed]
    return redis.error_reply('CORRUPT description')
  end
  --- @include record_expiry
  change.expires_ms, change.keeps_expiry = expires_ms, ttl_ms == '='
  redis.call('ZCARD', order) -- [type of the order]
  change.set = first + 5 + 2 * checks
  for at = first + 5, change.set - 1, 2 do
    local field, expected = unpack(ARGV, at, at + 1)
    local found = redis.call('HGET', record, field)
    number = number + 1
    local holds = not found and expected == '' or found and (expected == '*' or expected == '=' .. found)
    if not holds then refused = refused or number end -- [check]
  end
  change.described, change.is_checked = described, tonumber(checks) > 0
  if not described then written = 2 end -- [created]
  local ring_end = described and 11 + 8 * string.byte(described, 11) or 11
  --- @include describe_anew
  change.keep = change.set + 2 * sets
  change.drop = change.keep + 2 * keeps
  change.add = change.drop + drops
  change.remove = change.add + 2 * adds
  first = change.remove + removes
  change.after = first
  changes[#changes + 1] = change
end
if refused and not is_known then return -refused end
for _, change in ipairs(changes) do
  local record, order, id = change.record, change.order, change.id
  if not is_known then
    --- @include apply_change
  elseif change.overtaking and change.described then
    redis.call('HSET', record, '', change.described_anew) -- [known, and noted]
  end
  if change.expires_ms then
    redis.call('PEXPIREAT', order, change.expires_ms) -- [order expires]
    redis.call('PEXPIREAT', record, change.expires_ms) -- [record expires]
  elseif change.described and not change.keeps_expiry and redis.call('PTTL', record) >= 0 then
    redis.call('PERSIST', order) -- [order persists]
    redis.call('PERSIST', record) -- [record persists]
  end
end
return is_known and 0 or written

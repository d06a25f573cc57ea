-- Appends messages and changes state fields: all or nothing, and once for a token.
-- A call without messages only changes the state; either creates the session where it is missing.
-- KEYS
--   messages
--   state
--   active
--   overdue
--   leased
--   dead
--   evictions
--   fences
-- ARGV
--   session
--   now_ms         the server's clock where empty
--   token          8 bytes that name this append; the last 16 are remembered
--   nonce          makes a new epoch unique
--   timeout_ms
--   threshold      a longer window is overdue for a summary
--   window_limit   messages the window may hold
--   field_limit    fields the state may hold
--   expect         the last seq the caller saw, or empty
--   tokens         of all these messages
--   message_count
--   set_count      then the messages, set_count fields each with its value, and the fields to drop
-- REPLY first_seq last_seq created duplicate epoch window_first_seq window_count (-1: not looked at)
-- ERROR CONFLICT last_seq · FULL window_count · FIELDS field_count · CORRUPT
local messages, state, active, overdue, leased, dead, evictions, fences = unpack(KEYS)
local session, now_ms, token, nonce, timeout_ms, threshold, window_limit, field_limit,
  expect, tokens, message_count, set_count = unpack(ARGV, 1, 12)
message_count, set_count, timeout_ms = tonumber(message_count), tonumber(set_count), tonumber(timeout_ms)
local now = tonumber(now_ms)
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local old = redis.call('HMGET', state, 'epoch', 'first_seq', 'message_count', 'tokens', 'active_ms', 'expires_ms',
  'queued', 'evicting', 'ids_a', 'ids_b', 'ids_c')
local epoch, first_seq, total = old[1], tonumber(old[2] or 1), tonumber(old[3] or 0)
if epoch then
  for at = 2, 6 do
    if not tonumber(old[at]) then return redis.error_reply('CORRUPT not a number') end
  end
elseif redis.call('EXISTS', messages, state) > 0 then
  return redis.error_reply('CORRUPT no epoch')
end

-- Ten bytes an append, oldest first: its token, then its message count, the top bit set where it created the session.
local ids = (old[9] or '') .. (old[10] or '') .. (old[11] or '')
local function entry(at)
  local high, low = string.byte(ids, at + 8, at + 9)
  return (high % 128) * 256 + low, high >= 128 and 1 or 0
end
if message_count > 0 then
  local at = string.find(ids, token, 1, true)
  while at and at % 10 ~= 1 do at = string.find(ids, token, at + 1, true) end
  if at then
    local last_seq = total
    for newer = at + 10, #ids, 10 do last_seq = last_seq - entry(newer) end
    local count, created = entry(at)
    return {last_seq - count + 1, last_seq, created, 1, epoch, first_seq, -1}
  end
end
if expect ~= '' and tonumber(expect) ~= total then return redis.error_reply('CONFLICT ' .. total) end
local window = total - first_seq + 1 + message_count
if message_count > 0 and window > tonumber(window_limit) then
  return redis.error_reply('FULL ' .. window - message_count)
end
local from = 12 + message_count
if set_count > 0 and redis.call('HLEN', state) + set_count > tonumber(field_limit) then
  local fields = redis.call('HLEN', state)
  for at = from + 1, from + 2 * set_count, 2 do fields = fields + 1 - redis.call('HEXISTS', state, ARGV[at]) end
  if fields > tonumber(field_limit) then return redis.error_reply('FIELDS ' .. fields) end
end

-- From here on only writes, and the one that can be refused (the type of messages, memory) before the others.
local length = window
if message_count > 0 then
  local stamp, rest = '', now
  for _ = 1, 8 do
    stamp, rest = string.char(rest % 256) .. stamp, math.floor(rest / 256)
  end
  local elements = {}
  for i = 1, message_count do elements[i] = ARGV[12 + i] .. '\207' .. stamp end
  length = redis.call('RPUSH', messages, unpack(elements))
end
local changes = {'message_count', total + message_count, 'tokens', tonumber(old[4] or 0) + tonumber(tokens)}
local function change(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end
local created = not epoch
if created then
  epoch = redis.call('INCR', fences) .. '-' .. nonce
  change('epoch', epoch)
  change('first_seq', 1)
  -- A session of this name may have expired in a queue: its entries must not shadow the new one.
  for _, queue in ipairs({overdue, leased, dead, evictions}) do redis.call('ZREM', queue, session) end
end
if message_count > 0 then
  local size = message_count + (created and 32768 or 0)
  ids = string.sub(ids .. token .. string.char(math.floor(size / 256), size % 256), -160)
  change('ids_a', string.sub(ids, 1, 60))
  change('ids_b', string.sub(ids, 61, 120))
  change('ids_c', string.sub(ids, 121))
end
if length > tonumber(threshold) and not old[7] then
  redis.call('ZADD', overdue, now, session)
  change('queued', 'overdue')
end
if created or now - tonumber(old[5]) >= 1000 then
  redis.call('ZADD', active, now, session)
  change('active_ms', now)
end
local expires = tonumber(old[6] or 0)
local aged = created or expires - now < timeout_ms
if aged then
  expires = now + timeout_ms + math.floor(timeout_ms / 16)
  change('expires_ms', expires)
end
for at = from + 1, from + 2 * set_count do changes[#changes + 1] = ARGV[at] end
redis.call('HSET', state, unpack(changes))
if #ARGV > from + 2 * set_count then redis.call('HDEL', state, unpack(ARGV, from + 2 * set_count + 1)) end
if old[8] then
  redis.call('ZREM', evictions, session)
  redis.call('HDEL', state, 'evicting')
end
if aged then redis.call('PEXPIREAT', state, expires) end
if aged or length == message_count then redis.call('PEXPIREAT', messages, expires) end
return {total + 1, total + message_count, created and 1 or 0, 0, epoch, first_seq, length}

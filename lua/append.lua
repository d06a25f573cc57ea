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
--   threshold      a window of more messages is overdue for a summary
--   token_limit    so is one of more tokens; empty: no such limit
--   recent_limit   messages that stay as they are, however many tokens they have
--   window_limit   messages the window may hold
--   params_limit   params the state may hold
--   expect         the last seq the caller saw, or empty
--   tokens         of all these messages
--   message_count
--   set_count      then the messages, set_count fields each with its value, and the fields to drop
-- REPLY first_seq last_seq created duplicate epoch window_first_seq window_count (-1: not looked at)
-- ERROR CONFLICT last_seq · FULL window_count · PARAMS params_count · CORRUPT
local messages, state, active, overdue, leased, dead, evictions, fences = unpack(KEYS)
local session, now_ms, token, nonce, timeout_ms, threshold, token_limit, recent_limit,
  window_limit, params_limit, expect, tokens, message_count, set_count = unpack(ARGV, 1, 14)
message_count, timeout_ms = tonumber(message_count), tonumber(timeout_ms)
local time = now_ms == '' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local old = redis.call('HMGET', state, 'epoch', 'first_seq', 'message_count', 'tokens', 'active_ms', 'expires_ms',
  'queued', 'evicting', 'ids_a', 'ids_b', 'ids_c', 'ids_d')
local epoch, queued, evicting, ids_a, ids_b, ids_c, ids_d = old[1], old[7], old[8], old[9], old[10], old[11], old[12]
local first_seq, total, old_tokens, active_ms, expires_ms =
  tonumber(old[2]), tonumber(old[3]), tonumber(old[4]), tonumber(old[5]), tonumber(old[6])
local created = not epoch
if created then
  if redis.call('EXISTS', messages, state) > 0 then return redis.error_reply('CORRUPT no epoch') end
  first_seq, total, old_tokens, active_ms, expires_ms = 1, 0, 0, 0, 0
elseif not (first_seq and total and old_tokens and active_ms and expires_ms) then
  return redis.error_reply('CORRUPT not a number')
end
-- Ten bytes an append, oldest first: its token, then its message count, the top bit set where it created the session.
-- Five of them a field, the newest in ids_a, so that an append writes one field; the last 16 count. A value over
-- 64 bytes would make the hash several times as large.
ids_a = ids_a or ''
if message_count > 0 then
  local ids = (ids_d or '') .. (ids_c or '') .. (ids_b or '') .. ids_a
  local at = string.find(ids, token, -160, true)
  while at and at % 10 ~= 1 do at = string.find(ids, token, at + 1, true) end
  if at then
    local function entry(at)
      local high, low = string.byte(ids, at + 8, at + 9)
      return (high % 128) * 256 + low, high >= 128 and 1 or 0
    end
    local last_seq = total
    for newer = at + 10, #ids, 10 do last_seq = last_seq - entry(newer) end
    local count, began = entry(at)
    return {last_seq - count + 1, last_seq, began, 1, epoch, first_seq, -1}
  end
end
if expect ~= '' and tonumber(expect) ~= total then return redis.error_reply('CONFLICT ' .. total) end
local length = total - first_seq + 1
if message_count > 0 and length + message_count > tonumber(window_limit) then
  return redis.error_reply('FULL ' .. length)
end
local changes, drops_from = {}, 15 + message_count + 2 * set_count
for at = 15 + message_count, drops_from - 1 do changes[#changes + 1] = ARGV[at] end
if #changes > 0 and redis.call('HLEN', state) + set_count > tonumber(params_limit) then
  local fields, params = {}, 0
  for _, field in ipairs(redis.call('HKEYS', state)) do fields[field] = true end
  for at = 1, #changes, 2 do fields[changes[at]] = true end
  for at = drops_from, #ARGV do fields[ARGV[at]] = nil end
  for field in pairs(fields) do params = params + (string.find(field, '^param:') or 0) end
  if params > tonumber(params_limit) then return redis.error_reply('PARAMS ' .. params) end
end
local function change(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end
-- From here on only writes, and the one that can be refused (the type of messages, memory) before the others.
if message_count > 0 then
  -- Byte by byte in one call: the server hashes every string that Lua makes.
  local a, b, c, d, e, f = now % 2^48, now % 2^40, now % 2^32, now % 2^24, now % 2^16, now % 2^8
  local stamp = string.char(207, 0, (now - a) / 2^48, (a - b) / 2^40, (b - c) / 2^32, (c - d) / 2^24, (d - e) / 2^16,
    (e - f) / 2^8, f)
  local elements = {}
  for at = 1, message_count do elements[at] = ARGV[14 + at] .. stamp end
  length = redis.call('RPUSH', messages, unpack(elements))
  if #ids_a == 50 then
    change('ids_b', ids_a)
    if ids_b then change('ids_c', ids_b) end
    if ids_c then change('ids_d', ids_c) end
    ids_a = ''
  end
  ids_a = ids_a .. token .. string.char(math.floor(message_count / 256) + (created and 128 or 0), message_count % 256)
end
if created then
  epoch = redis.call('INCR', fences) .. '-' .. nonce
  change('epoch', epoch)
  change('first_seq', 1)
  -- A session of this name may have expired in a queue: its entries must not shadow the new one.
  for _, queue in ipairs({overdue, leased, dead, evictions}) do redis.call('ZREM', queue, session) end
  -- Where no worker sweeps, each new session takes a few that have long expired out of the indexes.
  local expired = redis.call('ZRANGEBYSCORE', active, '-inf', now - 2 * timeout_ms, 'LIMIT', 0, 8)
  if #expired > 0 then
    for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, unpack(expired)) end
  end
end
if not queued and (length > tonumber(threshold)
    or token_limit ~= '' and old_tokens + tokens > tonumber(token_limit) and length > tonumber(recent_limit)) then
  redis.call('ZADD', overdue, now, session)
  change('queued', 'overdue')
end
if now - active_ms >= 1000 then
  redis.call('ZADD', active, now, session)
  change('active_ms', now)
end
local aged = expires_ms - now < timeout_ms
if aged then
  expires_ms = now + timeout_ms + math.floor(timeout_ms / 16)
  change('expires_ms', expires_ms)
end
redis.call('HSET', state, 'message_count', total + message_count, 'tokens', old_tokens + tokens, 'ids_a', ids_a,
  unpack(changes))
if #ARGV >= drops_from then redis.call('HDEL', state, unpack(ARGV, drops_from)) end
if evicting then
  redis.call('ZREM', evictions, session)
  redis.call('HDEL', state, 'evicting')
end
if aged then redis.call('PEXPIREAT', state, expires_ms) end
if aged or length == message_count then redis.call('PEXPIREAT', messages, expires_ms) end
return {total + 1, total + message_count, created and 1 or 0, 0, epoch, first_seq, length}

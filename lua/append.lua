-- Appends messages and changes state fields: all or nothing, and once for a token.
-- A call without messages only changes the state; either creates the session where it is missing.
-- A window of more messages than threshold (at most window_limit, which no window exceeds) is overdue for a summary; so
-- is one of more tokens than token_limit (- for none) and more messages than recent_limit.
-- fresh: 1 where this append cannot have been made before, 0 where it may have been; 2 where it is sent again, and the
-- first one may still be on its way. tokens: of all these messages. expect: the last seq the caller saw, or -.
-- now_ms: - for the server's clock.
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
--   limits   timeout_ms threshold token_limit recent_limit window_limit params_limit: one argument, as each costs time
--   request  fresh message_count set_count tokens expect now_ms: likewise
--   token    8 bytes name this append, 8 make a new epoch unique; then messages, set_count fields and values, drops
-- REPLY counters; where the append created the session, or was made before: counters first_seq last_seq created
--   duplicate; where the window is not as long as the counters say, and nothing is written: counters epoch window_count
-- ERROR CONFLICT last_seq · FULL window_count · PARAMS params_count · CORRUPT
local messages, state, active, overdue, leased, dead, evictions, fences = unpack(KEYS)
local session, limits, request, token = unpack(ARGV, 1, 4)
local timeout_ms, threshold, token_limit, recent_limit, window_limit, params_limit =
  string.match(limits, '(%d+) (%d+) (%S+) (%d+) (%d+) (%d+)')
local fresh, message_count, set_count, tokens, expect, now_ms =
  string.match(request, '(%d) (%d+) (%d+) (%d+) (%S+) (%S+)')
message_count = tonumber(message_count)
local time = now_ms == '-' and redis.call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(now_ms)
local seen = redis.call('HMGET', state, 'counters', 'ids_a', 'repeated')
local counters, ids, repeated = seen[1], seen[2] or 'b', seen[3]
local created = not counters
if created and redis.call('EXISTS', messages, state) > 0 then return redis.error_reply('CORRUPT no counters') end
local first_seq, before, old_tokens, active_ms, expires_ms, evicting =
  string.match(counters or '1 0 0 0 0', '^(%d+) (%d+) (%d+) (%d+) (%d+) ?(%a*)$')
if not first_seq then return redis.error_reply('CORRUPT counters') end
-- Ten bytes an append, oldest first: its token, then its message count, the top bit set where it created the session.
-- The newest five stand in ids_a, behind the letter of the field they go to when full, over the oldest five: so an
-- append writes one field, and the last 16 are there. A value over 64 bytes would make the hash several times as large.
local name = string.sub(token, 1, 8)
local function following(letter) return letter == 'b' and 'c' or letter == 'c' and 'd' or 'b' end
-- Where one was sent again, what seems fresh may be the first sending of it, overtaken by the second.
if message_count > 0 and (fresh ~= '1' or repeated) then
  local first = string.sub(ids, 1, 1)
  local second = following(first)
  local older = redis.call('HMGET', state, 'ids_' .. first, 'ids_' .. second, 'ids_' .. following(second))
  local all = (older[1] or '') .. (older[2] or '') .. (older[3] or '') .. string.sub(ids, 2)
  local at = string.find(all, name, -160, true)
  while at and at % 10 ~= 1 do at = string.find(all, name, at + 1, true) end
  if at then
    local function entry(at)
      local high, low = string.byte(all, at + 8, at + 9)
      return (high % 128) * 256 + low, high >= 128 and 1 or 0
    end
    local last_seq = tonumber(before)
    for newer = at + 10, #all, 10 do last_seq = last_seq - entry(newer) end
    local count, began = entry(at)
    return {counters, last_seq - count + 1, last_seq, began, 1}
  end
end
if expect ~= '-' and tonumber(expect) ~= tonumber(before) then return redis.error_reply('CONFLICT ' .. before) end
local total, length = before + message_count, before - first_seq + 1 + message_count
local window_count = message_count > 0 and redis.call('LLEN', messages) or length
if window_count ~= length - message_count then return {counters, redis.call('HGET', state, 'epoch'), window_count} end
local is_long = length > tonumber(threshold)
if is_long and message_count > 0 and length > tonumber(window_limit) then
  return redis.error_reply('FULL ' .. length - message_count)
end
local changes, drops_from = {}, 5 + message_count + 2 * set_count
for at = 5 + message_count, drops_from - 1 do changes[#changes + 1] = ARGV[at] end
if #changes > 0 and redis.call('HLEN', state) + set_count > tonumber(params_limit) then
  local fields, params = {}, 0
  for _, field in ipairs(redis.call('HKEYS', state)) do fields[field] = true end
  for at = 1, #changes, 2 do fields[changes[at]] = true end
  for at = drops_from, #ARGV do fields[ARGV[at]] = nil end
  for field in pairs(fields) do params = params + (string.find(field, '^param:') or 0) end
  if params > tonumber(params_limit) then return redis.error_reply('PARAMS ' .. params) end
end
local function change(field, value) changes[#changes + 1], changes[#changes + 2] = field, value end
-- From here on only writes, the messages last. A crash may cut the server's log within them, and later starts then carry
-- out the first ones and, where it was sent again, this append as well: all but the messages is set, not added.
local elements = {}
if message_count > 0 then
  -- Byte by byte in one call: the server hashes every string that Lua makes.
  local a, b, c, d, e, f = now % 2^48, now % 2^40, now % 2^32, now % 2^24, now % 2^16, now % 2^8
  local stamp = string.char(207, 0, (now - a) / 2^48, (a - b) / 2^40, (b - c) / 2^32, (c - d) / 2^24, (d - e) / 2^16,
    (e - f) / 2^8, f)
  for at = 1, message_count do elements[at] = ARGV[4 + at] .. stamp end
  if #ids == 51 then
    local oldest = string.sub(ids, 1, 1)
    change('ids_' .. oldest, string.sub(ids, 2))
    ids = following(oldest)
  end
  if fresh == '2' and not repeated then change('repeated', 1) end
  ids = ids .. name .. string.char(math.floor(message_count / 256) + (created and 128 or 0), message_count % 256)
end
if created then
  local nonce = string.gsub(string.sub(token, 9), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  change('epoch', redis.call('INCR', fences) .. '-' .. nonce)
  -- A session of this name may have expired in a queue: its entries must not shadow the new one.
  for _, queue in ipairs({overdue, leased, dead, evictions}) do redis.call('ZREM', queue, session) end
  -- Where no worker sweeps, each new session takes a few that have long expired out of the indexes.
  local expired = redis.call('ZRANGEBYSCORE', active, '-inf', now - 2 * timeout_ms, 'LIMIT', 0, 8)
  if #expired > 0 then
    for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, unpack(expired)) end
  end
end
tokens = old_tokens + tokens
is_long = is_long or token_limit ~= '-' and tokens > tonumber(token_limit) and length > tonumber(recent_limit)
if is_long and not redis.call('HGET', state, 'queued') then
  redis.call('ZADD', overdue, now, session)
  change('queued', 'overdue')
end
local aged = false
if created or now - active_ms >= 1000 then
  redis.call('ZADD', active, now, session)
  active_ms = now
  -- Nothing is looked at within the next second.
  aged = expires_ms - now < timeout_ms + 1000
  if aged then expires_ms = now + timeout_ms + math.max(1000, math.floor(timeout_ms / 16)) end
end
counters = string.format('%s %d %d %d %d', first_seq, total, tokens, active_ms, expires_ms)
redis.call('HSET', state, 'counters', counters, 'ids_a', ids, unpack(changes))
if #ARGV >= drops_from then redis.call('HDEL', state, unpack(ARGV, drops_from)) end
if evicting ~= '' then redis.call('ZREM', evictions, session) end
if aged then for _, key in ipairs({state, messages}) do redis.call('PEXPIREAT', key, expires_ms) end end
if message_count > 0 then redis.call('RPUSH', messages, unpack(elements)) end
if length == message_count then redis.call('PEXPIREAT', messages, expires_ms) end
if created then return {counters, 1, total, 1, 0} end
return counters

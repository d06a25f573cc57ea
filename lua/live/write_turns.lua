-- Appends events to the logs of running turns, tells listeners, and extends the leases. Each turn is fenced by its generation
-- and holder. A log is only extended at its end: bytes that it has already are compared, so a resent call appends nothing
-- twice. A call at offset 0 replaces a log that differs. All writes set values, so that a restart may replay a part of them.
-- KEYS
--   state
--   live
--   turns     then those of each further turn
-- ARGV
--   now_ms    - for the server's clock
--   lease_ms  then session, generation, holder, offset and bytes of each turn
-- FIELDS reads turn stop doubt
--   writes doubt
-- REPLY for each turn: the bytes of its log, or differs if the log has other bytes there; then a space and the reason of a
--   stop that waits. Or lost if the turn has ended or another process has taken it over
-- ERROR
local state, live, turns = unpack(KEYS, 1, 3)
local now_ms, lease_ms = unpack(ARGV, 1, 2)
--- @include now
local replies = {}
for number = 1, #KEYS / 3 do
  state, live, turns = unpack(KEYS, 3 * number - 2, 3 * number)
  local session, generation, holder, offset, data = unpack(ARGV, 5 * number - 2, 5 * number + 2)
  -- By pcall, because a key of a foreign type must not keep the other turns from being written: such a turn is lost.
  local turn, stop, doubt = unpack(redis.pcall('HMGET', state, 'turn', 'stop', 'doubt'))
  --- @include turn
  local is_own = status == 'r' and seen_generation == generation and seen_holder == holder -- [fence]
  local log_bytes = is_own and redis.pcall('STRLEN', live)
  if type(log_bytes) == 'table' and not string.find(tostring(log_bytes.err), 'WRONGTYPE', 1, true) then return log_bytes end -- [ACL]
  local reply = 'lost'
  if type(log_bytes) == 'number' then
    local known_bytes = log_bytes - offset
    local is_equal = known_bytes == 0 or known_bytes > 0 and known_bytes <= #data
      and redis.call('GETRANGE', live, offset, -1) == string.sub(data, 1, known_bytes) -- [known bytes]
    local more = is_equal and string.sub(data, known_bytes + 1) or '' -- [new bytes]
    reply = (is_equal or known_bytes < 0) and log_bytes or 'differs'
    -- A refused channel must not stop the script, so listeners are told by pcall.
    if log_bytes == 0 and more ~= '' or reply == 'differs' and offset == '0' then
      redis.call('SET', live, data) -- [whole log]
      redis.pcall('SPUBLISH', live, generation .. ' 0\n' .. data)
      reply = #data
    elseif more ~= '' then
      reply = redis.call('SETRANGE', live, log_bytes, more) -- [once]
      redis.pcall('SPUBLISH', live, generation .. ' ' .. log_bytes .. '\n' .. more) -- [told]
    end
    -- All deletions come after this write, which a full Redis refuses.
    redis.call('ZADD', turns, now + lease_ms, session) -- [lease]
    if doubt then redis.call('HDEL', state, 'doubt') end -- [alive]
    local expires_ms = (offset == '0' or data == '') and redis.call('PEXPIRETIME', state) or 0
    if expires_ms > 0 then redis.call('PEXPIREAT', live, expires_ms) end -- [expires]
  end
  replies[number] = reply .. (reply ~= 'lost' and stop and ' ' .. stop or '')
end
return replies

-- A new session: its epoch, and no trace of what expired before it.
-- READS active overdue leased dead evictions fences session token now kept_ms change
-- SETS nonce expired handover_ms
local nonce = string.gsub(string.sub(token, 11), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
change('epoch', redis.call('INCR', fences) .. '-' .. nonce) -- [epoch]
-- A session of this name may have expired in a queue: its entries must not shadow the new one.
for _, queue in ipairs({overdue, leased, dead, evictions}) do redis.call('ZREM', queue, session) end -- [unqueued]
-- If no worker sweeps, each new session takes a few that have long expired out of the indexes, chosen to be evicted or not.
--- @include handover
local expired = redis.call('ZRANGEBYSCORE', active, '-inf', now - 2 * kept_ms - handover_ms, 'LIMIT', 0, 8)
if #expired > 0 then
  for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, unpack(expired)) end
end

-- A new session: its epoch, and no trace of what expired before it.
-- READS active overdue leased dead evictions fences state session token now kept_ms change
-- SETS nonce handover_ms long_ago prefix
local nonce = string.gsub(string.sub(token, 11), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
change('epoch', redis.call('INCR', fences) .. '-' .. nonce) -- [epoch]
-- A session of this name may have expired in a queue: its entries must not shadow the new one.
for _, queue in ipairs({overdue, leased, dead, evictions}) do redis.call('ZREM', queue, session) end -- [unqueued]
-- If no worker sweeps, each new session takes a few that have long expired out of the indexes, chosen to be evicted or not.
-- Those live on that were given a longer timeout. No KEYS name their states, which are of this shard: a server that
-- refuses to look at them leaves them listed.
--- @include handover
local long_ago = redis.call('ZRANGEBYSCORE', active, '-inf', now - 2 * kept_ms - handover_ms, 'LIMIT', 0, 8)
local prefix = string.sub(state, 1, -#session - 1)
for _, other in ipairs(long_ago) do
  if redis.pcall('EXISTS', prefix .. other) == 0 then -- [expired]
    for _, index in ipairs({active, overdue, leased, dead, evictions}) do redis.call('ZREM', index, other) end
  end
end

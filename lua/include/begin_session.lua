-- Begins a session: draws its epoch, notes its owner and its time zone, and removes index entries of expired sessions.
-- READS active overdue leased dead evictions owners fences state session limits token epoch now kept_ms change
-- SETS nonce epoch owner zone handover_ms long_ago prefix
local nonce = string.gsub(string.sub(token, 23), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
epoch = redis.call('INCR', fences) .. '-' .. nonce -- [epoch]
change('epoch', epoch)
local owner = owners and string.match(limits, '@(.*)$')
if owner then
  change('owner', owner)
  redis.call('ZADD', owners, string.match(owner, '^%d+'), session)
end
local zone = string.match(limits, '^[^@]*%%(%S+)') -- [zone]
if zone then change('zone', zone) end
-- An earlier session of this id may have expired in a queue: its entries must not shadow the new session.
for _, queue in ipairs({overdue, leased, dead, evictions}) do redis.call('ZREM', queue, session) end -- [unqueued]
-- In case no worker sweeps, each new session removes a few long-expired sessions from the indexes, even if they wait for
-- eviction. Sessions with a longer timeout may still live, so EXISTS decides. KEYS do not name their states, which are
-- in this shard: if a server refuses access to them, they stay listed.
--- @include handover
local long_ago = redis.call('ZRANGEBYSCORE', active, 0, now - 2 * kept_ms - handover_ms, 'LIMIT', 0, 8)
local prefix = string.sub(state, 1, -#session - 1)
for _, other in ipairs(long_ago) do
  if redis.pcall('EXISTS', prefix .. other) == 0 then -- [expired]
    -- Without owners, the sweep removes the entry there.
    for _, index in ipairs({active, overdue, leased, dead, evictions, owners}) do redis.call('ZREM', index, other) end
  end
end

-- Applies the change of one record: the index first and the description last, so that a log cut in between never leaves a
-- record that no index names, or a write that counts as made.
-- READS change record order id records owned updated
-- SETS
redis.call('ZADD', records, 0, id) -- [listed]
-- Behind the first addition: a script that has removed something would go on when memory is short.
if not change.described then redis.call('UNLINK', order) end -- [left of an expired record]
if change.updated_us ~= '-' then redis.call('ZADD', updated, change.updated_us, id) end -- [update listed]
if change.owner ~= '-' and not change.described then redis.call('ZADD', owned, change.owner, id) end -- [owner listed]
for at = change.drop, change.add - 1, 1000 do
  redis.call('HDEL', record, unpack(ARGV, at, math.min(at + 999, change.add - 1))) -- [drops]
end
for at = change.remove, change.after - 1, 1000 do
  redis.call('ZREM', order, unpack(ARGV, at, math.min(at + 999, change.after - 1))) -- [removals]
end
for at = change.keep, change.drop - 1, 2 do
  redis.call('HSETNX', record, unpack(ARGV, at, at + 1)) -- [first wins]
end
for at = change.add, change.remove - 1, 1000 do
  redis.call('ZADD', order, unpack(ARGV, at, math.min(at + 999, change.remove - 1))) -- [additions]
end
for at = change.set, change.keep - 1, 1000 do
  redis.call('HSET', record, unpack(ARGV, at, math.min(at + 999, change.keep - 1))) -- [sets]
end
if change.is_checked or change.overtaking or not change.described then redis.call('HSET', record, '', change.described_anew) end -- [described]

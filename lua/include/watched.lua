-- Lists the expiry of a session with an own timeout, or exempt from the limit, in the eviction queue: negative, since it is
-- not chosen. Workers find the others by their last activity.
-- READS evictions session is_watched expires_ms
-- SETS
if is_watched then redis.call('ZADD', evictions, -expires_ms, session) end -- [watched]

-- When a session that is active now expires: after the time it is kept for and a sixteenth of it, at least a second, so
-- that the time to live need not be set again with every message.
-- READS now kept_ms
-- SETS expires_ms
expires_ms = now + kept_ms + math.max(1000, math.floor(kept_ms / 16))

-- When a session that is active now expires: after its timeout and a sixteenth of it, at least a second, so that the
-- time to live need not be set again with every message.
-- READS now idle_timeout_ms
-- SETS expires_ms
expires_ms = now + idle_timeout_ms + math.max(1000, math.floor(idle_timeout_ms / 16))

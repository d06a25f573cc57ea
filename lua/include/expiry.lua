-- When a session that is active now expires: after its timeout and a sixteenth of it, at least a second, so that the
-- time to live need not be set again with every message.
-- READS now timeout_ms
-- SETS expires_ms
expires_ms = now + timeout_ms + math.max(1000, math.floor(timeout_ms / 16))

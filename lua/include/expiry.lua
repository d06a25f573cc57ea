-- Computes the expiry of a session active now: kept_ms plus a sixteenth of it, or plus a second if that is more. The
-- surplus saves renewing the time to live with every message.
-- READS now kept_ms
-- SETS expires_ms
expires_ms = now + kept_ms + math.max(1000, math.floor(kept_ms / 16))

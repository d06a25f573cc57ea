-- Minimum life of a session after a worker with an on_evict queues its eviction: a day to hand the transcript over.
-- READS
-- SETS handover_ms
local handover_ms = 86400000

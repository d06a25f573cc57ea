-- How long a session lives at least once it is chosen for eviction by a worker with an on_evict: a day to hand it over.
-- READS
-- SETS handover_ms
local handover_ms = 86400000

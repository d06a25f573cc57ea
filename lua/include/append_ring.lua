-- Reads the ring of append ids (see remember_append), oldest first, and the epoch.
-- READS state ids
-- SETS b c d known_epoch oldest ring
local b, c, d, known_epoch = unpack(redis.call('HMGET', state, 'ids_b', 'ids_c', 'ids_d', 'epoch'))
b, c, d = b or '', c or '', d or ''
local oldest = string.sub(ids, 1, 1)
local ring = oldest == 'b' and b .. c .. d or oldest == 'c' and c .. d .. b or d .. b .. c
ring = ring .. string.sub(ids, 2)

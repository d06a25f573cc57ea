-- Encodes the time as a msgpack number of 64 bits, which ends every element of the messages.
-- READS now
-- SETS a b c d e f stamp
-- One string.char call for all bytes: the server hashes every string that Lua creates.
local a, b, c, d, e, f = now % 2^48, now % 2^40, now % 2^32, now % 2^24, now % 2^16, now % 2^8
local stamp = string.char(207, 0, (now - a) / 2^48, (a - b) / 2^40, (b - c) / 2^32, (c - d) / 2^24, (d - e) / 2^16,
  (e - f) / 2^8, f)

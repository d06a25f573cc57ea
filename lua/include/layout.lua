-- Refuses a session with another layout version: only the release that wrote it can read it.
-- READS counters
-- SETS version
local version = string.match(counters, '^v(%d+)')
if version and version ~= '1' then return redis.error_reply('LAYOUT ' .. version) end

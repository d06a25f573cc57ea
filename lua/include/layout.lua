-- Refuses a session that another release wrote in a layout of its own: nobody but that release knows what it holds.
-- READS counters
-- SETS version
local version = string.match(counters, '^v(%d+)')
if version and version ~= '1' then return redis.error_reply('LAYOUT ' .. version) end

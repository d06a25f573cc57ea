-- Removes fields of the originals, named with blanks between them.
-- READS originals gone
-- SETS
for name in string.gmatch(gone, '%S+') do redis.call('HDEL', originals, name) end

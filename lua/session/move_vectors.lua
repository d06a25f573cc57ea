-- Copies the vectors of a full block into the session's vector set, if the server has vector sets. The vectors beside the
-- block are renamed, so that a search of blocks outside the set skips them.
-- KEYS
--   originals
--   vectors
-- ARGV
--   block     number of the block
--   seen      its vectors as read
--   model     mark of the embedding model, and the dimensions; then each element and its vector
-- FIELDS
-- REPLY 1 moved, 0 the block has other vectors, or none; -1 the server has no vector sets, or they are forbidden
-- ERROR
local originals, vectors = unpack(KEYS)
local block, seen, model = unpack(ARGV, 1, 3)
if redis.call('HGET', originals, 'v' .. block) ~= seen then return 0 end
-- The set has vectors of another model or an earlier epoch, or is lost.
if redis.call('HGET', originals, 'vectors') ~= model or redis.call('EXISTS', vectors) == 0 then
  --- @include drop_vectors
end
local refused = false
for at = 4, #ARGV, 2 do
  -- The smallest graph: searches compare all elements, and linking neighbours would take longer than some turns.
  local added = redis.pcall('VADD', vectors, 'FP32', ARGV[at + 1], ARGV[at], 'EF', '1', 'M', '4')
  refused = refused or type(added) == 'table' and added.err
end
redis.call('PEXPIREAT', vectors, redis.call('PEXPIRETIME', originals))
if refused then return -1 end
redis.call('HSET', originals, 'vectors', model, 'w' .. block, seen)
redis.call('HDEL', originals, 'v' .. block)
return 1

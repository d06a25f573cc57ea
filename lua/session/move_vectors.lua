-- Puts the vectors of a full block into the vector set of the session, if the server has such. Those beside the block
-- are kept under another name, so that who asks for what is not in the set does not get them as well.
-- KEYS
--   originals
--   vectors
-- ARGV
--   block     its number
--   found     its vectors as they were read
--   model     who made them, and their dimensions; then elements, and the vector of each
-- FIELDS
-- REPLY 1 they are there, 0 the block has others, or none; -1 this server has no vector sets, or not for this user
-- ERROR
local originals, vectors = unpack(KEYS)
local block, found, model = unpack(ARGV, 1, 3)
if redis.call('HGET', originals, 'v' .. block) ~= found then return 0 end
-- One of another model, or of an earlier life; or it is lost.
if redis.call('HGET', originals, 'vectors') ~= model or redis.call('EXISTS', vectors) == 0 then
  --- @include drop_vectors
end
local refused = false
for at = 4, #ARGV, 2 do
  -- The least of a graph: nobody walks it. To look for neighbours to link would take longer than some turns.
  local added = redis.pcall('VADD', vectors, 'FP32', ARGV[at + 1], ARGV[at], 'EF', '1', 'M', '4')
  refused = refused or type(added) == 'table' and added.err
end
redis.call('PEXPIREAT', vectors, redis.call('PEXPIRETIME', originals))
if refused then return -1 end
redis.call('HSET', originals, 'vectors', model, 'w' .. block, found)
redis.call('HDEL', originals, 'v' .. block)
return 1

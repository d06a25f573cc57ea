-- Adds the append to the ring of append ids. An id has twelve bytes: ten of the token, then the message count, with the top
-- bit set if the append created the session. ids_a holds the newest five, oldest first, behind the letter of the field
-- that they overwrite when ids_a is full: that field holds the oldest five. So an append writes one field, and the last
-- 16 are always there. A value over 64 bytes would make the hash several times as large.
-- READS ids token message_count created change overtaking counters state now resent
-- SETS ids
if #ids == 61 then
  local oldest = string.sub(ids, 1, 1)
  --- @include keep_older
  change('ids_' .. oldest, string.sub(ids, 2))
  ids = oldest == 'b' and 'c' or oldest == 'c' and 'd' or 'b'
end
if overtaking then change('resent', overtaking) end -- [fenced]
ids = ids .. string.sub(token, 1, 10)
  .. string.char(math.floor(message_count / 256) + (created and 128 or 0), message_count % 256)

-- Puts the append into the ring of append ids. Twelve bytes an append, oldest first: the name and three more bytes of its
-- token, then its message count, the top bit set if it created the session. The newest five stand in ids_a, behind the letter of the field they go
-- to when full, over the oldest five: so an append writes one field, and the last 16 are there. A value over 64 bytes
-- would make the hash several times as large.
-- READS ids token message_count fresh repeated created change
-- SETS ids
if #ids == 61 then
  local oldest = string.sub(ids, 1, 1)
  change('ids_' .. oldest, string.sub(ids, 2))
  ids = oldest == 'b' and 'c' or oldest == 'c' and 'd' or 'b'
end
if fresh == '2' and not repeated then change('repeated', 1) end
ids = ids .. string.sub(token, 1, 10)
  .. string.char(math.floor(message_count / 256) + (created and 128 or 0), message_count % 256)

"""Search all conversations of one owner, by an index that each process makes of the sessions."""

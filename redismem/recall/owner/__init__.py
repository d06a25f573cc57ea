"""Search all conversations of one owner, by an index of their blocks."""

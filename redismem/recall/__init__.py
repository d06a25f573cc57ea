"""Search the summarised messages of a session, by words and by meaning."""

HITS_LIMIT = 8
"""The default number of hits."""

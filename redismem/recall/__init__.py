"""Search the summarised messages of a session, by words and by meaning."""

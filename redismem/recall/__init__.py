"""Search the summarised messages of a conversation, by words and by meaning."""

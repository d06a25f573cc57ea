"""Find old messages of a conversation by words and by meaning."""

"""The conversations that frameworks keep in records, as messages to read."""

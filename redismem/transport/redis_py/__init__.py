"""Calls over a redis-py client: a client that the caller provides, or the embedded store."""

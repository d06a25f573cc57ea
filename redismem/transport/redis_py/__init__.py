"""Calls over a redis-py client, one of the caller's, or the embedded store."""

"""Transports send each call once. Retries are up to the store."""

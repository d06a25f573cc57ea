"""Transports, which send each call once. The store decides about retries."""

"""Calls about records: generic hashes with an order, checks and one expiry. Mirrors `lua/record/`."""

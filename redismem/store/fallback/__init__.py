"""Serve appends and reads from this process while Redis is down, and replay them afterwards."""

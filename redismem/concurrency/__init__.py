"""Threads, forks and the caller's callbacks."""

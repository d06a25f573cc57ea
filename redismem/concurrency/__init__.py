"""Threads, forks, and code of the caller's own."""

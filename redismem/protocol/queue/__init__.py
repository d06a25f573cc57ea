"""Calls of workers: one per script in lua/queue/."""

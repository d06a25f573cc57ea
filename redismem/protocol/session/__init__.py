"""Calls about one session: one per script in lua/session/."""

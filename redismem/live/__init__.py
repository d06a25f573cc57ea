"""Turns while they run: one writer a session, any number of listeners, in any process."""

"""Calls about a project: one per script in lua/project/."""

"""Queries over a project's items: filters, pages, the state at an earlier time."""

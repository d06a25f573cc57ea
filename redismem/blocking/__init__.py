"""The same memory without `await`, fit for any thread."""

from redismem.blocking.memory import Conversations, Memory, Project, Session

__all__ = ["Conversations", "Memory", "Project", "Session"]

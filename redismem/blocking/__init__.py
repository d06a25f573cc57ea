"""The memory without `await`, for any thread."""

from redismem.blocking.memory import Conversations, Memory, Project, Session

__all__ = ["Conversations", "Memory", "Project", "Session"]

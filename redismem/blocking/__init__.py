"""The memory without `await`, for any thread."""

from redismem.blocking.memory import Conversations, Memory, Project, Session
from redismem.blocking.record import Record, get_all, write_all
from redismem.blocking.turns import Turn

__all__ = ["Conversations", "Memory", "Project", "Record", "Session", "Turn", "get_all", "write_all"]

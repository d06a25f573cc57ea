"""The handle of one conversation: messages, state and recall."""

from redismem.session.session import Session

__all__ = ["Session"]

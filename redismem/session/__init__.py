"""The handle of one conversation."""

from redismem.session.session import Session

__all__ = ["Session"]

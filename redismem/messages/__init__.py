"""Messages and state values, and their encoding in Redis."""

from redismem.messages.message import UNSET, Message, TokenCounter

__all__ = ["UNSET", "Message", "TokenCounter"]

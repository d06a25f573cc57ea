"""A message, a state value, and the bytes that Redis stores of them."""

from redismem.messages.message import UNSET, Message, TokenCounter

__all__ = ["UNSET", "Message", "TokenCounter"]

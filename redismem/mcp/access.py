"""The memory of a call: of the process, or of the key of the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import anyio

from redismem import Memory

T = TypeVar("T")
Scope = Literal["read", "write"]
Access = Callable[[Scope], Memory]
"""A function that returns the memory of the running call, or raises ToolError if its caller lacks the scope."""


async def settle_write(write: Awaitable[T]) -> T:
    """Await a write to its end, even if the client cancels the call or disconnects. Its deadline bounds it."""
    with anyio.CancelScope(shield=True):
        result = await write
    return result  # noqa: RET504 (within the block mypy misses a return: a scope may swallow an error)

"""The parts that all adapters share: open a memory, name a session, choose its policy, settle a mutation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from redismem import InvalidSessionId, Memory, Policy

T = TypeVar("T")

_LONGEST_S = 10 * 365 * 86_400
"""The longest idle timeout of a policy."""


def missing_framework(module: str, extra: str) -> ImportError:
    """Return the error for an adapter whose framework is not installed."""
    return ImportError(f"{module} needs the extra {extra}: pip install 'redismem[{extra}]'")


def make_policy(ttl_s: float | None, summarise: bool) -> Policy:
    """Return the policy of a framework's session: whole unless it is summarised, and removed by its own timeout alone.

    `ttl_s` is the time without activity after which Redis removes the session; `None` means ten years, the longest.
    """
    return Policy(keep_whole=not summarise, idle_timeout_s=_LONGEST_S if ttl_s is None else ttl_s, exempt=True)


def join_id(prefix: str, session_id: str) -> str:
    """Return the id of the redismem session behind a framework's session: `<prefix>:<session_id>`.

    Raises:
        InvalidSessionId: The framework's id is empty or not a string, so all such sessions would be one.
    """
    if not isinstance(session_id, str) or not session_id.strip():
        raise InvalidSessionId("the session id is empty or not a string: give each conversation an id of its own")
    return f"{prefix}:{session_id}" if prefix else session_id


@dataclass(slots=True, eq=False)
class _Shared:
    memory: Memory
    users_count: int = 0


_lock = threading.Lock()
_by_url: dict[str | None, _Shared] = {}


def borrow_memory(url: str | None) -> Memory:
    """Return the memory that all adapters of this process share for a URL. Give it back with `return_memory`.

    `None` means `REDISMEM_URL`. All other settings come from the environment.

    Raises:
        InvalidSettings: The URL cannot be used.
    """
    with _lock:
        shared = _by_url.get(url)
        if shared is None:
            shared = _by_url[url] = _Shared(Memory.connect(url))
        shared.users_count += 1
        return shared.memory


def return_memory(url: str | None) -> Memory | None:
    """Give back a memory from `borrow_memory`. Return it if nothing uses it any more: then the caller closes it."""
    with _lock:
        shared = _by_url[url]
        shared.users_count -= 1
        if shared.users_count:
            return None
        del _by_url[url]
    return shared.memory


@lru_cache(maxsize=8)
def memory_over(client: Any) -> Memory:
    """Return the memory over a caller's redis-py client. All sessions over one client share it.

    Raises:
        InvalidSettings: The client cannot be used.
    """
    return Memory.connect(client=client)


async def settle(mutation: Awaitable[T]) -> T:
    """Await a mutation to its end even if the caller is cancelled, and raise CancelledError only then.

    A caller that was cancelled can then read whether the mutation was made, before it decides what to do.
    """
    task = asyncio.ensure_future(mutation)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        task.cancelled() or task.exception()  # retrieved, so that asyncio does not log it
        raise cancelled
    return task.result()

"""What a running service has: its memories, who may ask, its limits, and whether it is about to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redismem.errors import StoreUnavailable
from redismem.memory import Memory
from redismem.project.project import Project
from redismem.session.session import Session
from redismem.web.access import Access, Caller
from redismem.web.chat.chat import Chat
from redismem.web.http.problems import Problem
from redismem.web.metrics.load import Load
from redismem.web.metrics.prometheus import Meters
from redismem.web.watching import Watch

CALLER = "redismem.caller"
"""Where the scope of a request names who asks."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and all of them together, may take."""

    body_bytes: int = 4 * 1024 * 1024
    request_s: float = 15
    idle_s: int = 5
    """How long a connection may stay open without a whole head of a request."""
    streams_count: int = 1_000
    """Streams that are open at once."""
    stream_write_s: float = 10
    """How long a reader of a stream may take nothing before it is cut off."""
    rate_per_s: float | None = None
    """Requests of one key a second, all servers together; None: no limit."""
    rate_burst_count: int = 20


@dataclass(slots=True)
class Service:
    """What one server has at hand for its requests: memories, access, limits, meters."""

    memories: Mapping[str, Memory]
    """The memory of each namespace, by its name."""
    access: Access
    limits: Limits = field(default_factory=Limits)
    chat: Chat = field(default_factory=Chat)
    cors_origins: tuple[str, ...] = ()
    meters: Meters = field(default_factory=Meters)
    """Its `event` is the `on_event` of the memories."""
    load: Load = field(init=False)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams_count: int = 0
    cut_off: Callable[[Any], object] = bool
    """Ends a connection at once, with what is still to be written to it. Set by whoever serves."""
    _watches: dict[str, Watch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.load = Load(self.meters)

    @property
    def hidden_params(self) -> frozenset[str]:
        """Params whose values are shown to nobody but administrators."""
        return self.chat.hidden_params

    def watch(self, caller: Caller) -> Watch:
        """What tells of changes in the caller's sessions."""
        if caller.namespace not in self._watches:
            self._watches[caller.namespace] = Watch(self.memories[caller.namespace])
        return self._watches[caller.namespace]

    def memory(self, caller: Caller) -> Memory:
        """The caller's memory: there is no way to another's."""
        return self.memories[caller.namespace]

    def session(self, caller: Caller, session_id: str) -> Session:
        """Raises InvalidSessionId."""
        return self.memory(caller).session(session_id)

    def project(self, memory: Memory, name: str) -> Project:
        """The project of this name, whose prompts do not show what nobody is shown. Raises InvalidItem."""
        project = memory.project(name)
        project.hidden_properties = self.hidden_params
        return project

    async def take_rate(self, caller: Caller) -> None:
        """Raises Problem: too_many_requests. A store that does not answer stops nobody: what follows will say so."""
        if self.limits.rate_per_s is None:
            return
        with contextlib.suppress(StoreUnavailable):
            wait_ms = await self.memory(caller).take(
                f"key:{caller.name}", self.limits.rate_per_s, self.limits.rate_burst_count
            )
            if wait_ms:
                raise Problem("too_many_requests", retry_after_s=wait_ms / 1000)

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """A place among the streams. Raises Problem: overloaded, stopping."""
        if self.stopping.is_set():
            raise Problem("stopping")
        if self.streams_count >= self.limits.streams_count:
            raise Problem("overloaded", "as many streams are open as this server takes")
        self.streams_count += 1
        try:
            yield
        finally:
            self.streams_count -= 1


@contextlib.asynccontextmanager
async def opened(namespaces: tuple[str, ...], connect: Callable[[str], Memory]) -> AsyncIterator[dict[str, Memory]]:
    """The memories of these namespaces, connected. Raises what connecting raises."""
    async with contextlib.AsyncExitStack() as stack:
        yield {namespace: await stack.enter_async_context(connect(namespace)) for namespace in namespaces}

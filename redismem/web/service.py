"""The state of a running service: its memories, access keys, limits and meters, and whether it is stopping."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from redismem.errors import StoreUnavailable
from redismem.inspection.checkup import Checkup
from redismem.memory.memory import Memory
from redismem.project.project import Project
from redismem.session.session import Session
from redismem.web.access import Access, Caller
from redismem.web.chat.chat import Begun, Chat, Question
from redismem.web.http.problems import Problem
from redismem.web.metrics.load import Load
from redismem.web.metrics.prometheus import Meters
from redismem.web.open_streams import OpenStream, OpenStreams, StreamKind
from redismem.web.watching import Watch

log = logging.getLogger("redismem")

CALLER = "redismem.caller"
"""The key of the `Caller` in a request's ASGI scope."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request, and of all requests together."""

    body_bytes: int = 4 * 1024 * 1024
    request_s: float = 15
    idle_s: int = 5
    """The seconds after which a connection without a complete request head is closed."""
    streams_count: int = 1_000
    """The maximum number of open streams, shared by keys and namespaces as `open_streams` says."""
    searches_count: int = 4
    """The lists and searches of one namespace that run at once. Further ones wait, within their deadline."""
    stream_write_s: float = 10
    """The seconds after which a stream is cut off if its client reads nothing."""
    rate_per_s: float | None = None
    """The requests per second and key, counted over all servers; `None` means no limit."""
    rate_burst_count: int = 20


@dataclass(slots=True)
class Service:
    """The state that a server needs to answer requests: memories, access, limits, meters."""

    memories: Mapping[str, Memory]
    """The memory of each namespace, by the namespace's name."""
    access: Access
    limits: Limits = field(default_factory=Limits)
    chat: Chat = field(default_factory=Chat)
    cors_origins: tuple[str, ...] = ()
    embedded: bool = False
    """True if the store is inside this process."""
    meters: Meters = field(default_factory=Meters)
    """The meters, whose `event` is the `on_event` of the memories."""
    load: Load = field(init=False)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams: OpenStreams = field(init=False)
    cut_off: Callable[[Any], object] = bool
    """A function that closes a connection at once and drops its unsent data. The server sets this function."""
    _watches: dict[str, Watch] = field(default_factory=dict)
    _searches: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    _checkups: dict[str, Checkup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.load = Load(self.meters)
        self.streams = OpenStreams(self.limits.streams_count)

    @property
    def hidden_params(self) -> frozenset[str]:
        """The params whose values only administrators may read."""
        return self.chat.hidden_params

    def watch(self, caller: Caller) -> Watch:
        """Return the watch on the sessions of the caller's namespace. The first call creates the watch."""
        if caller.namespace not in self._watches:
            self._watches[caller.namespace] = Watch(self.memory(caller))
        return self._watches[caller.namespace]

    def checkup(self, caller: Caller) -> Checkup:
        """Return the doctor's findings about the caller's namespace. The first call creates them."""
        if caller.namespace not in self._checkups:
            self._checkups[caller.namespace] = Checkup(self.memory(caller).store, embedded=self.embedded)
        return self._checkups[caller.namespace]

    async def aclose(self) -> None:
        """End the examinations in the background."""
        for checkup in self._checkups.values():
            await checkup.aclose()

    def searching(self, caller: Caller) -> asyncio.Semaphore:
        """Return the semaphore that a list or search of the caller's namespace holds while it runs."""
        if caller.namespace not in self._searches:
            self._searches[caller.namespace] = asyncio.Semaphore(self.limits.searches_count)
        return self._searches[caller.namespace]

    def memory(self, caller: Caller) -> Memory:
        """Return the memory of the caller's namespace.

        Raises:
            Problem: store_unavailable, if the namespace came with a new key and Redis has not answered since.
        """
        memory = self.memories.get(caller.namespace)
        if memory is None:
            raise Problem("store_unavailable")
        return memory

    def session(self, caller: Caller, session_id: str, owner: str | None = None) -> Session:
        """Return a session of the caller's namespace. `owner` is the owner that the request names.

        Raises:
            InvalidSessionId: No session can have this id or owner.
        """
        return self.memory(caller).session(session_id, owner=owner)

    def project(self, memory: Memory, name: str) -> Project:
        """Return a project whose prompts leave out the hidden params.

        Raises:
            InvalidItem: No project can have this name.
        """
        project = memory.project(name)
        project.hidden_properties = self.hidden_params
        return project

    def background(self, caller: Caller, name: str | None) -> Project | None:
        """Return the project that a message names, or else that of the chat; `None` if there is none.

        Raises:
            InvalidItem: No project can have this name.
            Problem: not_allowed, if the key is of one owner: a project may tell of others.
        """
        if caller.owner is not None and name not in (None, self.chat.project):
            raise Problem("not_allowed", "a key of one owner reaches sessions alone, no project")
        name = name or self.chat.project
        return None if name is None else self.project(self.memory(caller), name)

    async def take_rate(self, caller: Caller) -> None:
        """Count a request against the rate of the caller's key.

        If the store does not answer, the request passes here, and fails with the error of its own call to the store.

        Raises:
            Problem: too_many_requests.
        """
        if self.limits.rate_per_s is None:
            return
        with contextlib.suppress(StoreUnavailable):
            wait_ms = await self.memory(caller).take(
                f"key:{caller.name}", self.limits.rate_per_s, self.limits.rate_burst_count
            )
            if wait_ms:
                raise Problem("too_many_requests", retry_after_s=wait_ms / 1000)

    async def answer(self, caller: Caller, session: Session, asked: Question) -> Begun:
        """Begin to answer a message, which takes a place until the answer is stored, listeners or not.

        With a key of one owner it may recall what was said in other conversations of this owner.

        Raises the errors of `Session.turn`, and Problem: stopping, overloaded or too_many_requests.
        """
        place = self.take_place(caller, StreamKind.ANSWER)

        def ended(outcome: str) -> None:
            place.leave()
            if outcome:
                self.meters.count_turn(outcome)

        scope = "session" if caller.owner is None else self.chat.recall_scope
        return await self.chat.begin(caller.namespace, session, replace(asked, recall_scope=scope), ended)

    def take_place(self, caller: Caller, kind: StreamKind) -> OpenStream:
        """Take a place for a stream or an answer, which the caller must leave.

        Raises:
            Problem: stopping, overloaded or too_many_requests.
        """
        if self.stopping.is_set():
            raise Problem("stopping")
        return self.streams.take(caller, kind, self.access)


class Memories(dict[str, Memory]):
    """Open memories, by namespace."""

    def __init__(self, connect: Callable[[str], Memory]) -> None:
        super().__init__()
        self._connect = connect

    async def open(self, namespace: str) -> None:
        """Connect the memory of a namespace.

        Raises:
            RedismemError: The memory cannot be connected.
        """
        memory = self._connect(namespace)
        await memory.__aenter__()
        self[namespace] = memory

    async def aclose(self) -> None:
        """Close all memories at once, because each may wait for its workers and for the replay of its backlog.

        Raises the first error, after all of them have ended. Further ones are logged by their type.
        """
        results = await asyncio.gather(*(memory.aclose() for memory in self.values()), return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors[1:]:
            log.error("another memory was not closed as it should be: %s", type(error).__name__)
        if errors:
            raise errors[0]


@contextlib.asynccontextmanager
async def opened(namespaces: tuple[str, ...], connect: Callable[[str], Memory]) -> AsyncIterator[Memories]:
    """Connect a memory for each namespace, and close all memories at the end of the block.

    Raises:
        RedismemError: A memory cannot be connected.
    """
    async with contextlib.aclosing(Memories(connect)) as memories:
        for namespace in namespaces:
            await memories.open(namespace)
        yield memories

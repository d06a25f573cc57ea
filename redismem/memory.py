"""The face: a memory is a namespace of sessions in Redis, and gives the handle of each. For asyncio."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Protocol, Self

from redismem.concurrency.background import LoopBackground
from redismem.context import Receipt
from redismem.errors import InvalidSettings
from redismem.events import OnEvent
from redismem.info import Health, SessionPage
from redismem.messages.message import TokenCounter
from redismem.project.project import Project
from redismem.protocol import ids
from redismem.protocol.clock import Clock
from redismem.protocol.keys import plain
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.session.append import append_limits
from redismem.protocol.session.calls import SessionCalls
from redismem.recall.cache import RecallCache
from redismem.session.session import Session
from redismem.settings.settings import Settings
from redismem.store.open import open_store
from redismem.store.store import Store
from redismem.transport.base import place_of
from redismem.transport.connect import connect

if TYPE_CHECKING:
    from redismem.recall.embedder import Embed, Embedder

_REMEMBERED_COUNT = 4_096


class Workers(Protocol):
    """Workers that live with a memory: `redismem.workers.scheduler.Scheduler`."""

    async def start(self) -> None:
        """Begins to work."""

    async def stop(self) -> None:
        """Ends what is in hand, or gives it back."""

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Told of each append of this process."""


class Memory:
    """The sessions of one namespace. Fit for any number of tasks at once: make one a process, close it at the end."""

    def __init__(self, store: Store, count_tokens: TokenCounter | None = None, workers: Workers | None = None) -> None:
        """A memory on this store. `connect` is what puts all of it together."""
        self.store = store
        self._count_tokens = count_tokens
        self._append_limits = append_limits(store.settings)
        self.settings = store.settings
        self.recall_cache = RecallCache(store.settings.max_recalled_sessions, store.settings.max_recalled_bytes)
        """What this process caches of the sessions that it recalled from."""
        # A handle is made for every turn: what the calls of the sessions used last have in common is kept.
        self._calls = lru_cache(maxsize=_REMEMBERED_COUNT)(self._session_calls)
        self._projects = lru_cache(maxsize=_REMEMBERED_COUNT)(partial(Project, store, sessions=self.session))
        self.workers = workers
        self._has_workers_begun = False
        self._on_append = None if workers is None else workers.appended
        if workers is not None:
            store.on_agreed = self._start_workers

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        namespace: str = "default",
        settings: Settings | None = None,
        client: Any = None,
        count_tokens: TokenCounter | None = None,
        on_event: OnEvent | None = None,
        clock: Clock | None = None,
        workers: bool | Callable[[Store], Workers] = False,
        fallback: bool | None = None,
        embed: Embed | str | None = None,
        **others: Never,
    ) -> Memory:
        """A memory on the Redis at `url`; without one on `REDISMEM_URL`'s, and without that on a new embedded store.

        An embedded store ends with the process, so it is warned of, unless the URL is `memory://`. An empty URL raises.

        `client`: a redis.asyncio client to use instead, which stays yours to close. `count_tokens`: called with each
        message's dict. `workers`: True to summarise and evict in this process too, as the settings say; or what makes
        the workers, such as `partial(Scheduler, strategy=mine)`. They begin with `async with`, or with the first call
        about a session, and end with `aclose()`. `on_event`: a plain function that is told of each call and each piece
        of a worker's work when it has ended, well or not. It runs on the event loop, so it must be quick. What it
        raises is logged, once a kind, and disturbs no call. `clock`: for tests; gives milliseconds since 1970 as an
        int, which then count everywhere instead of the server's time. `fallback`:
        True to serve appends and reads from this process while Redis is away, marked `degraded`, and to replay them
        when it is back; None: as `REDISMEM_FALLBACK` says. `embed`: who makes vectors of messages, so that recall finds
        what means the same: an async callable that gives one for each of some texts, or a provider's model, such as
        `openai:text-embedding-3-small`; None: as `REDISMEM_EMBED` says. It needs `redismem[embeddings]`.
        No I/O happens here; `async with` checks that Redis answers and has the same layout and as many shards.
        Raises InvalidSessionId for the namespace, InvalidSettings, TypeError for a hook that must be awaited, or for
        `others`: there are none.
        """
        refuse_others(others)
        settings = Settings.given(settings)
        background = LoopBackground() if (settings.fallback if fallback is None else fallback) else None
        transport = connect(settings.url if url is None else url, client, settings)
        store = open_store(transport, namespace, settings, on_event, clock, background)
        store.embedder = make_embedder(embed, settings)
        return cls(store, count_tokens, make_workers(store, workers))

    def __repr__(self) -> str:
        place = place_of(self.store.transport)
        return f"<Memory of namespace {self.store.keys.namespace!r}{f' at {place}' if place else ''}>"

    async def __aenter__(self) -> Self:
        try:
            await self.store.open()
            await self._start_workers()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops the workers and closes the connections; a client that the caller brought stays open.

        With the fallback: first replays what it has accepted, within `deadline_s`; what Redis does not take is lost,
        which is logged as an error.
        """
        if self.workers is not None:
            await self.workers.stop()
        if self.store.embedder is not None:
            await self.store.embedder.aclose()
        await self.store.aclose()

    async def _start_workers(self) -> None:
        if self.workers is None or self._has_workers_begun:
            return
        self._has_workers_begun = True
        try:
            await self.workers.start()
        except BaseException:
            self._has_workers_begun = False
            raise

    def session(self, session_id: str) -> Session:
        """The handle of a session, without I/O. Raises InvalidSessionId."""
        if type(session_id) is not str:
            session_id = plain(session_id) if isinstance(session_id, str) else ""
        return Session(self.store, self._calls(session_id), self.recall_cache, self._on_append)

    def project(self, name: str) -> Project:
        """The handle of a project, without I/O. Raises InvalidItem for a name that is none."""
        return self._projects(plain(name) if isinstance(name, str) else "")

    def _session_calls(self, session_id: str) -> SessionCalls:
        keys = self.store.keys.session(session_id)
        return SessionCalls(keys, self.settings, self._count_tokens, self._append_limits, self.store.clock)

    @staticmethod
    def new_session_id() -> str:
        """A UUIDv7: unique, and sorted by time."""
        return ids.new_session_id()

    async def ping(self) -> bool:
        """True if Redis answers. Raises StoreUnavailable."""
        return await self.store.ping()

    async def count(self) -> int:
        """Live sessions of the namespace: those active within the timeout. Raises StoreUnavailable."""
        since_ms = await self._alive_since_ms()
        return await self.store.run(namespace_calls.count(self.store.keys, since_ms))

    async def sessions(self, limit: int = 100, cursor: str | None = None) -> SessionPage:
        """A page of the live sessions, the last active first.

        `cursor`: the last page's. Raises ValueError for a cursor that no page gave, or a limit outside 1 to 10,000;
        StoreUnavailable.
        """
        since_ms = await self._alive_since_ms()
        return await self.store.run(namespace_calls.page(self.store.keys, limit, cursor, since_ms))

    def health(self) -> Health:
        """Whether Redis counts as away, since when and why, and what is to be replayed. Without I/O.

        With workers: also what they look after for all pods of the namespace.
        """
        return replace(self.store.health(), holds=getattr(self.workers, "holds", ()))

    async def take(self, name: str, per_s: float, burst_count: int = 1) -> int:
        """Takes one of what `name` may do, together with all others of the namespace who take under this name.

        Gives 0 if it was taken, else how many milliseconds to wait. `burst_count`: how many at once after a pause.
        Raises ValueError for a rate outside 0.001 to 1,000,000, StoreUnavailable.
        """
        return await self.store.run(namespace_calls.take(self.store.keys, name, per_s, burst_count))

    async def server_time_ms(self) -> int:
        """The server's clock, or the memory's own, in milliseconds. Raises StoreUnavailable, InvalidTime."""
        return await self.store.server_time_ms()

    async def _alive_since_ms(self) -> int:
        return await self.server_time_ms() - self.settings.idle_timeout_ms


def refuse_others(names: Collection[str]) -> None:
    """Raises TypeError for what `Memory.connect` does not take, with the place where it belongs."""
    for name in names:
        if name in Settings.model_fields:
            raise TypeError(f"connect() has no option {name!r}: pass settings=Settings({name}=...)")
        near = difflib.get_close_matches(name, [*inspect.signature(Memory.connect).parameters][:-1], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TypeError(f"connect() has no option {name!r}{hint}")


def make_embedder(embed: Embed | str | None, settings: Settings) -> Embedder | None:
    """Who makes vectors, as `connect` was asked for, or as the settings say. Raises InvalidSettings."""
    if not (wanted := embed or settings.embed):
        return None
    from redismem.recall.embedder import open_embedder  # numpy is imported only for those who want vectors

    return open_embedder(wanted, settings)


def make_workers(store: Store, wanted: bool | Callable[[Store], Workers]) -> Workers | None:
    """The workers that `connect` was asked for. Raises InvalidSettings."""
    if wanted is True:
        from redismem.workers.scheduler import Scheduler  # APScheduler is imported only for those who want workers

        return Scheduler.from_settings(store)
    if wanted is False:
        return None
    if not callable(wanted):
        raise InvalidSettings(
            "workers is True, False, or what makes them of a store, such as partial(Scheduler, strategy=mine); "
            f"not one of the type {type(wanted).__name__}"
        )
    return wanted(store)

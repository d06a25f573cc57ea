"""The same memory for callers without an event loop, and from any thread.

Nothing is copied: a method here runs the coroutine of its namesake in `memory`, over a transport that blocks when the
other suspends. Such a coroutine ends at its first step, so there is no event loop and no thread behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

from redismem import memory
from redismem.blocking import project as projects
from redismem.blocking.workers import WorkerThread
from redismem.concurrency.background import ThreadBackground
from redismem.concurrency.finished import blocking as _blocking
from redismem.concurrency.finished import finished as _finished
from redismem.context import Context
from redismem.errors import InvalidSettings
from redismem.events import OnEvent
from redismem.info import Health
from redismem.messages.coercion import Shape
from redismem.messages.message import Message, TokenCounter
from redismem.project import project as async_project
from redismem.protocol.clock import Clock
from redismem.protocol.session.append import AppendOptions
from redismem.session import session
from redismem.session.background import PROJECT_TOKENS
from redismem.settings.settings import Settings
from redismem.store.open import open_store
from redismem.store.store import Store
from redismem.transport.connect import connect_blocking, connect_both

if TYPE_CHECKING:
    from redismem.recall.embedder import Embed, Embedder


class Memory:
    """The same as `redismem.Memory`, without await: `with Memory.connect(...) as memory`."""

    def __init__(self, twin: memory.Memory) -> None:
        self._twin = twin
        self.store = twin.store
        self.settings = twin.settings

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
        workers: bool | Callable[[Store], memory.Workers] = False,
        fallback: bool | None = None,
        embed: Embed | str | None = None,
        **others: Never,
    ) -> Memory:
        """The same as `redismem.Memory.connect`; `client` is a `redis.Redis`.

        `on_event` runs in the thread of the call. `workers` run in a thread of their own, with an event loop and
        connections of its own, so they need a URL and no client: they begin with `with` or the first call about a
        session, and `close()` waits for them. With the `fallback`, a thread looks for Redis while it is away.
        `embed` is awaited in the workers' thread, and for questions in another, each with an event loop of its own.
        """
        memory.refuse_others(others)
        settings = Settings.given(settings)
        url = settings.url if url is None else url
        background = ThreadBackground() if (settings.fallback if fallback is None else fallback) else None
        if workers is False:
            transport = connect_blocking(url, client, settings)
            store = open_store(transport, namespace, settings, on_event, clock, background)
            store.embedder = _embedder(embed, settings)
            return cls(memory.Memory(store, count_tokens))
        if client is not None:
            raise InvalidSettings("workers need a URL: a client for blocking callers is of no use to their event loop")
        blocking, connect_looping = connect_both(url, settings)
        store = open_store(blocking, namespace, settings, on_event, clock, background)
        store.embedder = _embedder(embed, settings)

        def make() -> memory.Memory:
            theirs = open_store(connect_looping(), namespace, settings, on_event, clock)
            theirs.embedder = memory.make_embedder(embed, settings)
            return memory.Memory(theirs, workers=memory.make_workers(theirs, workers))

        return cls(memory.Memory(store, count_tokens, WorkerThread(make)))

    def __repr__(self) -> str:
        return f"<blocking {repr(self._twin)[1:]}"

    def __enter__(self) -> Self:
        _finished(self._twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def session(self, session_id: str) -> Session:
        """Return the handle of a session, without I/O.

        Raises:
            InvalidSessionId: The id is empty, too long, or has characters that are not allowed.
        """
        return Session(self._twin.session(session_id))

    def health(self) -> Health:
        """Return what this process knows about Redis, without I/O: up or down, since when and why, and the backlog.

        With workers, also the queues that they poll for all pods of the namespace.
        """
        return self._twin.health()

    def project(self, name: str) -> Project:
        """Return the handle of a project, without I/O.

        Raises:
            InvalidItem: The name is invalid.
        """
        return Project(self._twin.project(name))

    new_session_id = staticmethod(memory.Memory.new_session_id)
    close = _blocking(memory.Memory.aclose)
    ping = _blocking(memory.Memory.ping)
    count = _blocking(memory.Memory.count)
    sessions = _blocking(memory.Memory.sessions)
    take = _blocking(memory.Memory.take)


def _embedder(embed: Embed | str | None, settings: Settings) -> Embedder | None:
    if not (wanted := embed or settings.embed):
        return None
    from redismem.blocking.embedder import BlockingEmbedder
    from redismem.recall.embedder import open_embedder

    return BlockingEmbedder(partial(open_embedder, wanted, settings))


class Conversations(projects.Conversations):
    """The same as the conversations of a project, without await."""

    __slots__ = ()

    def session(self, id: str) -> Session:
        """The session that holds its messages, without I/O. Raises InvalidItem."""
        return Session(self._twin.session(id))


class Project(projects.Project):
    """The same as a project of `redismem.Memory`, without await."""

    __slots__ = ()
    conversations: Conversations

    def __init__(self, twin: async_project.Project) -> None:
        super().__init__(twin)
        self.conversations = Conversations(twin.conversations)


class Session:
    """The same as `redismem.Session`, without await."""

    __slots__ = ("_twin",)

    def __init__(self, twin: session.Session) -> None:
        self._twin = twin

    def __repr__(self) -> str:
        return f"<blocking {repr(self._twin)[1:]}"

    @property
    def id(self) -> str:
        """The session's id, unchanged."""
        return self._twin.id

    append = _blocking(session.Session.append)

    def append_and_read(
        self,
        *messages: Message | Shape,
        recall: int | None = None,
        project: Project | None = None,
        project_tokens: int = PROJECT_TOKENS,
        **options: Unpack[AppendOptions],
    ) -> Context:
        """The same as that of `redismem.Session`: its explanation stands there, and is put here below."""
        if not isinstance(project, Project | None):
            raise TypeError(
                f"project must come from memory.project(…) of a blocking memory, not {type(project).__name__}"
            )
        twin = None if project is None else project.twin
        asked: dict[str, Any] = {"recall": recall, "project": twin, "project_tokens": project_tokens}
        return _finished(self._twin.append_and_read(*messages, **asked, **options))

    append_and_read.__doc__ = session.Session.append_and_read.__doc__
    recall = _blocking(session.Session.recall)
    read = _blocking(session.Session.read)
    messages = _blocking(session.Session.messages)
    clear = _blocking(session.Session.clear)
    prune = _blocking(session.Session.prune)
    pop = _blocking(session.Session.pop)
    undo = _blocking(session.Session.undo)
    replace = _blocking(session.Session.replace)
    unpin = _blocking(session.Session.unpin)
    exists = _blocking(session.Session.exists)
    touch = _blocking(session.Session.touch)
    info = _blocking(session.Session.info)
    telemetry = _blocking(session.Session.telemetry)
    state = _blocking(session.Session.state)
    params = _blocking(session.Session.params)
    waiting = _blocking(session.Session.waiting)
    last_intent = _blocking(session.Session.last_intent)
    last_result = _blocking(session.Session.last_result)
    plan = _blocking(session.Session.plan)
    update = _blocking(session.Session.update)
    merge = _blocking(session.Session.merge)
    set_waiting = _blocking(session.Session.set_waiting)
    set_last_intent = _blocking(session.Session.set_last_intent)
    set_last_result = _blocking(session.Session.set_last_result)
    set_plan = _blocking(session.Session.set_plan)

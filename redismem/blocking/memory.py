"""The blocking memory and session, for any thread without an event loop.

Each method runs the coroutine of the async method with the same name, over a transport that blocks and never suspends.
So the coroutine finishes in one step, and needs no event loop and no further thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

from redismem.blocking import project as projects
from redismem.blocking.record import Record
from redismem.blocking.transcripts import Transcripts
from redismem.blocking.turns import SessionTurns, Turn, TurnThread
from redismem.blocking.workers import WorkerThread
from redismem.concurrency.background import ThreadBackground
from redismem.concurrency.run_sync import blocking as _blocking
from redismem.concurrency.run_sync import run_without_loop as _run_without_loop
from redismem.context.context import Context
from redismem.context.info import Health, Policy
from redismem.errors import InvalidSettings
from redismem.events import OnEvent
from redismem.live.beginning import WhenBusy
from redismem.memory import memory
from redismem.memory.arguments import make_embedder, refuse_others
from redismem.messages.coercion import Shape
from redismem.messages.message import Message, TokenCounter
from redismem.project import project as async_project
from redismem.project.kinds import conversations as async_conversations
from redismem.protocol.clock import Clock
from redismem.protocol.session.append import AppendOptions, TurnOptions
from redismem.session import session
from redismem.session.background import PROJECT_TOKENS
from redismem.session.paging import Scope
from redismem.settings.settings import Settings
from redismem.store.open import open_store
from redismem.store.store import Store
from redismem.transport.connect import connect, connect_both
from redismem.workers.options import make_workers, worker_options

if TYPE_CHECKING:
    from redismem.recall.embedder import Embed, Embedder
    from redismem.transport.base import Transport
    from redismem.transport.credentials import Credentials
    from redismem.workers.archive import OnEvict
    from redismem.workers.keeper import Workers
    from redismem.workers.strategies import Strategy


class Memory:
    """The sessions of one namespace, for any number of threads. Open one memory per process and close it.

    `redismem.Memory` without `await`:

    >>> with Memory.connect("redis://127.0.0.1:6379/0", namespace="shop") as memory:
    ...     session = memory.session("user-42")
    """

    def __init__(self, twin: memory.Memory, turns: TurnThread | None = None) -> None:
        self._twin = twin
        self._turns = TurnThread(_refuse_turns) if turns is None else turns
        self.store = twin.store
        self.settings = twin.settings

    @classmethod
    def connect(  # noqa: PLR0913 (all but the URL are keywords)
        cls,
        url: str | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
        client: Any = None,
        count_tokens: TokenCounter | None = None,
        on_event: OnEvent | None = None,
        clock: Clock | None = None,
        workers: bool | Callable[[Store], Workers] = False,
        on_evict: OnEvict | None = None,
        strategy: Strategy | None = None,
        concurrency: int | None = None,
        fallback: bool | None = None,
        embed: Embed | str | None = None,
        **others: Never,
    ) -> Memory:
        """Return a memory. It connects on first use.

        `with` also checks that Redis answers, and that its layout and number of shards are the expected ones.

        See `redismem.Memory.connect` for all arguments and errors. These arguments differ:

        Args:
            credentials: The function must return within `reply_timeout_s`. Each call of an async function has an event
                loop of its own.
            client: A `redis.Redis` to use instead of a URL. The caller closes this client.
            on_event: The function runs in the thread of the call that it reports.
            workers: The workers run in a thread with its own event loop and connections, so they need a URL and no
                client. They start with `with` or the first call of a session, and `close()` waits for them.
            on_evict: The callable is awaited in the workers' thread, and so is `strategy`.
            fallback: While Redis is down, a background thread probes it.
            embed: The callable is awaited in the workers' thread, and for questions in another thread. Each of these
                threads has its own event loop.
        """
        refuse_others(others, cls.connect)
        options = worker_options(workers, on_evict=on_evict, strategy=strategy, concurrency=concurrency)
        settings = Settings.given(settings, fallback)
        url = settings.url if url is None else url
        background = ThreadBackground() if settings.fallback else None
        if client is not None and workers is not False:
            raise InvalidSettings("workers need a URL: their event loop cannot use a blocking client")
        transport, connect_async = _connect(url, client, settings, credentials)
        store = open_store(transport, namespace, settings, on_event, clock, background)
        store.embedder = _embedder(embed, settings)

        def make_async_memory(workers: bool | Callable[[Store], Workers] = False) -> memory.Memory:
            async_store = open_store(connect_async(), namespace, settings, on_event, clock)
            async_store.embedder = make_embedder(embed, settings)
            made = None if workers is False else make_workers(async_store, workers, options)
            return memory.Memory(async_store, count_tokens, made)

        thread = None if workers is False else WorkerThread(store, partial(make_async_memory, workers))
        turns = TurnThread(make_async_memory)
        return cls(memory.Memory(store, count_tokens, thread), turns)

    def __repr__(self) -> str:
        return f"<blocking {repr(self._twin)[1:]}"

    def __enter__(self) -> Self:
        _run_without_loop(self._twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def session(self, session_id: str, *, policy: Policy | None = None, owner: str | None = None) -> Session:
        """Return the handle of a session, without I/O.

        Args:
            session_id: The id of the session.
            policy: The rules of the session, if this handle creates it. They are stored with the first append or
                change of the state, and every process obeys them. An existing session keeps its policy, whatever the
                handle has; `Session.set_policy` changes it.
            owner: The person whom the session belongs to: an id of 1 to 256 bytes, stored when the session begins. If
                an existing session has another owner, or none, every method raises OwnerMismatch.

        Raises:
            InvalidSessionId: The id or the owner is empty, too long, or has characters that are not allowed.
            InvalidSettings: The policy is invalid.
        """
        twin = self._twin.session(session_id, policy=policy, owner=owner)
        turns = SessionTurns(self._turns, lambda memory: memory.session(session_id, policy=policy, owner=owner))
        return Session(twin, turns)

    def health(self) -> Health:
        """Return what this process knows about Redis, without I/O: up or down, since when and why, and the backlog.

        If the memory has workers, also return the queues that they poll for all pods of the namespace.
        """
        return self._twin.health()

    def project(self, name: str) -> Project:
        """Return the handle of a project, without I/O.

        Raises:
            InvalidItem: The name is invalid.
        """
        return Project(self._twin.project(name), self._turns)

    def record(
        self, record_id: str, *, tag: str | None = None, owner: str | None = None, ttl_s: float | None = None
    ) -> Record:
        """See `redismem.Memory.record`; its docstring is copied below."""
        return Record(self._twin.record(record_id, tag=tag, owner=owner, ttl_s=ttl_s))

    record.__doc__ = memory.Memory.record.__doc__

    @property
    def transcripts(self) -> Transcripts:
        """The conversations that frameworks keep in records, to list and read as messages."""
        return Transcripts(self._twin.transcripts)

    new_session_id = staticmethod(memory.Memory.new_session_id)

    def close(self) -> None:
        """See `redismem.Memory.aclose`; its docstring is copied below."""
        try:
            self._turns.stop()
        finally:
            _run_without_loop(self._twin.aclose())

    close.__doc__ = memory.Memory.aclose.__doc__
    ping = _blocking(memory.Memory.ping)
    count = _blocking(memory.Memory.count)
    sessions = _blocking(memory.Memory.sessions)
    records = _blocking(memory.Memory.records)
    forget = _blocking(memory.Memory.forget)
    take = _blocking(memory.Memory.take)
    queues = _blocking(memory.Memory.queues)


def _connect(
    url: str | None, client: Any, settings: Settings, credentials: Credentials | None
) -> tuple[Transport, Callable[[], Transport]]:
    """Return a transport that blocks, and a function that makes one for an event loop."""
    if client is None:
        return connect_both(url, settings, credentials)
    return connect(url, client, settings, credentials, blocks=True), _refuse_turns


def _refuse_turns() -> Never:
    raise InvalidSettings("turns need a URL: their event loop cannot use a blocking client")


def _embedder(embed: Embed | str | None, settings: Settings) -> Embedder | None:
    if not (source := embed or settings.embed):
        return None
    from redismem.blocking.embedder import BlockingEmbedder
    from redismem.recall.embedder import open_embedder

    return BlockingEmbedder(partial(open_embedder, source, settings))


class Conversations(projects.Conversations):
    """The conversations of a project, without `await`."""

    __slots__ = ("_turns",)

    def __init__(self, twin: async_conversations.Conversations, turns: TurnThread, project: str) -> None:
        super().__init__(twin)
        self._turns = turns, project

    def session(self, id: str, *, owner: str | None = None) -> Session:
        """Return the session that holds the messages of a conversation, without I/O.

        `owner` is the person whom the session belongs to, if this handle creates it.

        Raises:
            InvalidItem: The id is invalid.
            InvalidSessionId: The owner is invalid.
        """
        thread, project = self._turns
        turns = SessionTurns(thread, lambda memory: memory.project(project).conversations.session(id, owner=owner))
        return Session(self._twin.session(id, owner=owner), turns)


class Project(projects.Project):
    """A project: decisions, tasks, entities and conversations, without `await`. `Memory.project` returns it."""

    __slots__ = ()
    conversations: Conversations

    def __init__(self, twin: async_project.Project, turns: TurnThread) -> None:
        super().__init__(twin)
        self.conversations = Conversations(twin.conversations, turns, twin.name)


class Session:
    """The handle of one conversation: messages, state and recall. `redismem.Session` without `await`.

    A handle keeps no state and costs no I/O, so get one per turn or keep it. Any number of pods may share a session.
    """

    __slots__ = ("_turns", "_twin")

    def __init__(self, twin: session.Session, turns: SessionTurns) -> None:
        self._twin = twin
        self._turns = turns

    def __repr__(self) -> str:
        return f"<blocking {repr(self._twin)[1:]}"

    @property
    def id(self) -> str:
        """The session's id, unchanged."""
        return self._twin.id

    append = _blocking(session.Session.append)

    def check(self, *messages: Message | Shape) -> None:
        """See `redismem.Session.check`; its docstring is copied below."""
        self._twin.check(*messages)

    check.__doc__ = session.Session.check.__doc__

    def append_and_read(
        self,
        *messages: Message | Shape,
        recall: int | None = None,
        recall_scope: Scope = "session",
        project: Project | None = None,
        project_tokens: int = PROJECT_TOKENS,
        **options: Unpack[AppendOptions],
    ) -> Context:
        """See `redismem.Session.append_and_read`; its docstring is copied below."""
        if not isinstance(project, Project | None):
            raise TypeError(
                f"project must come from memory.project(…) of a blocking memory, not {type(project).__name__}"
            )
        twin = None if project is None else project.twin
        reads: dict[str, Any] = {"recall": recall, "recall_scope": recall_scope}
        reads |= {"project": twin, "project_tokens": project_tokens}
        return _run_without_loop(self._twin.append_and_read(*messages, **reads, **options))

    append_and_read.__doc__ = session.Session.append_and_read.__doc__

    def turn(
        self,
        /,
        *messages: Message | Shape,
        id: str,
        when_busy: WhenBusy = "refuse",
        wait_s: float = 30,
        recall: int | None = None,
        recall_scope: Scope = "session",
        project: Project | None = None,
        project_tokens: int = PROJECT_TOKENS,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """See `redismem.Session.turn`; its docstring is copied below."""
        given: dict[str, Any] = {"id": id, "when_busy": when_busy, "wait_s": wait_s, **options}
        given |= {"recall": recall, "recall_scope": recall_scope, "project_tokens": project_tokens}
        return self._turns.turn(messages, given, None if project is None else project.twin.name)

    turn.__doc__ = session.Session.turn.__doc__

    def follow(self, after: str | None = None, turn: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """See `redismem.Session.follow`; its docstring is copied below."""
        return self._turns.follow(after, turn)

    follow.__doc__ = session.Session.follow.__doc__

    stop = _blocking(session.Session.stop)
    turn_of = _blocking(session.Session.turn_of)
    recall = _blocking(session.Session.recall)
    read = _blocking(session.Session.read)
    tail = _blocking(session.Session.tail)
    messages = _blocking(session.Session.messages)
    clear = _blocking(session.Session.clear)
    prune = _blocking(session.Session.prune)
    archive = _blocking(session.Session.archive)
    pop = _blocking(session.Session.pop)
    undo = _blocking(session.Session.undo)
    rewrite = _blocking(session.Session.rewrite)
    replace = _blocking(session.Session.replace)
    unpin = _blocking(session.Session.unpin)
    forget = _blocking(session.Session.forget)
    set_aside = _blocking(session.Session.set_aside)
    exists = _blocking(session.Session.exists)
    touch = _blocking(session.Session.touch)
    set_policy = _blocking(session.Session.set_policy)
    info = _blocking(session.Session.info)
    telemetry = _blocking(session.Session.telemetry)
    state = _blocking(session.Session.state)
    params = _blocking(session.Session.params)
    waiting = _blocking(session.Session.waiting)
    last_intent = _blocking(session.Session.last_intent)
    last_result = _blocking(session.Session.last_result)
    plan = _blocking(session.Session.plan)
    title = _blocking(session.Session.title)
    update = _blocking(session.Session.update)
    merge = _blocking(session.Session.merge)
    set_waiting = _blocking(session.Session.set_waiting)
    set_last_intent = _blocking(session.Session.set_last_intent)
    set_last_result = _blocking(session.Session.set_last_result)
    set_plan = _blocking(session.Session.set_plan)
    set_title = _blocking(session.Session.set_title)

"""The entry point, for asyncio: a memory opens the sessions and projects of one namespace in Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Never, Self

from redismem.concurrency.background import LoopBackground
from redismem.concurrency.offload import run_to_end
from redismem.context.info import Health, Policy, Queues, SessionPage
from redismem.errors import ForgottenSessions
from redismem.events import OnEvent
from redismem.memory.arguments import make_embedder, refuse_others
from redismem.messages.message import TokenCounter
from redismem.protocol import ids
from redismem.protocol.appends import append_limits
from redismem.protocol.clock import Clock
from redismem.protocol.keys import plain
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.owners import check_owner
from redismem.protocol.policy import encode_policy
from redismem.protocol.session.calls import SessionCalls
from redismem.recall.cache import RecallCache
from redismem.session.session import Session
from redismem.settings.environment import warn_of_timeout
from redismem.settings.settings import Settings
from redismem.store.depths import depths_of
from redismem.store.open import open_store
from redismem.store.sessions import read_sessions
from redismem.store.store import Store
from redismem.transport.base import place_of
from redismem.transport.connect import connect

if TYPE_CHECKING:
    from redismem.memory.erasure import OnProgress
    from redismem.project.project import Project
    from redismem.protocol.record.listing import RecordPage
    from redismem.recall.embedder import Embed
    from redismem.record.record import Record
    from redismem.record.transcripts.transcripts import Transcripts
    from redismem.transport.credentials import Credentials
    from redismem.workers.archive import OnEvict
    from redismem.workers.keeper import Workers
    from redismem.workers.strategies import Strategy

_REMEMBERED_COUNT = 4_096


class Memory:
    """The sessions of one namespace, for any number of concurrent tasks. Open one memory per process and close it.

    >>> async with Memory.connect("redis://127.0.0.1:6379/0", namespace="shop") as memory:
    ...     session = memory.session("user-42")
    """

    def __init__(self, store: Store, count_tokens: TokenCounter | None = None, workers: Workers | None = None) -> None:
        """Use `Memory.connect` instead of this constructor."""
        self.store, self.settings = store, store.settings
        self._count_tokens = count_tokens
        self._append_limits = append_limits(store.settings)
        self.recall_cache = RecallCache(store.settings.max_recalled_sessions, store.settings.max_recalled_bytes)
        # Each turn makes a handle, so the prepared calls of the most recently used sessions are cached.
        self._calls = lru_cache(maxsize=_REMEMBERED_COUNT)(self._session_calls)
        self._projects = lru_cache(maxsize=_REMEMBERED_COUNT)(self._open_project)
        self.workers = workers
        self._on_append = None if workers is None else workers.appended
        if workers is not None:
            store.agreement.on_first_call = workers.start

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

        `async with` also checks that Redis answers, and that its layout and number of shards are the expected ones.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`; if that is unset too, an embedded store. The embedded
                store ends with the process, so the memory logs a warning unless the URL is `memory://`.
            namespace: The tenant: namespaces never mix. `None` means `REDISMEM_NAMESPACE`, or else `default`.
            settings: All other settings. `None` reads them from the environment.
            credentials: A function, plain or async, that returns user and password as a tuple; `None` as user means
                the user in the URL, or the default user. It is called before each greeting of a connection, and once
                more if Redis does not accept the login. A plain function runs in a thread. It may take 10 s. `None`
                means `REDISMEM_PASSWORD_FILE` and `REDISMEM_USERNAME`, or else the login in the URL.
            client: A redis.asyncio client to use instead of a URL. The caller closes this client. It serves one event
                loop at a time: its connections are closed when the loop ends, and a second loop is refused until then.
                A cluster client serves only its first loop.
            count_tokens: A function that returns the number of tokens of a message, given as a dict.
            on_event: A plain function that is called with an event after each call and each piece of work of a
                worker, successful or not. It runs on the event loop, so it must return quickly. Its exceptions are
                logged once per type and affect no call.
            clock: A clock for tests: it returns milliseconds since 1970 as an int and replaces the server's time.
            workers: True also writes summaries and evicts in this process, as the settings say. They start with
                `async with` or the first call of a session, and stop with `aclose()`. A callable makes workers of your
                own from the store, such as `partial(Scheduler, stop_s=30)`.
            on_evict: An async callable that the workers await with a session's id and transcript before they evict the
                session. Needs `workers=True`, as the next two arguments do.
            strategy: An object that writes the summaries; the caller closes it. `None` means that of the settings.
            concurrency: The number of summaries in progress at a time, 1 to 10,000. `None` means 16.
            fallback: True serves appends and reads from this process while Redis is down, marked `degraded`, and
                replays them afterwards. `None` means `REDISMEM_FALLBACK`.
            embed: An async callable that returns one vector per text, a provider's model such as
                `openai:text-embedding-3-small`, or `wordllama`, which works offline; recall then also searches by
                meaning. `None` means `REDISMEM_EMBED`. Needs `redismem[embeddings]`, or `redismem[wordllama]`.

        Raises:
            InvalidSessionId: The namespace is invalid.
            InvalidSettings: A setting, the URL, the client or another argument is invalid, or the password file cannot
                be used.
            TypeError: `on_event` is not a plain function, or an argument is unknown.
        """
        refuse_others(others, cls.connect)
        settings = Settings.given(settings, fallback)
        background = LoopBackground() if settings.fallback else None
        transport = connect(settings.url if url is None else url, client, settings, credentials)
        store = open_store(transport, namespace, settings, on_event, clock, background)
        store.embedder = make_embedder(embed, settings)
        options = {"on_evict": on_evict, "strategy": strategy, "concurrency": concurrency}
        if workers is False and not any(value is not None for value in options.values()):
            return cls(store, count_tokens)
        from redismem.workers.options import make_workers, worker_options  # no turn needs them

        return cls(store, count_tokens, make_workers(store, workers, worker_options(workers, **options)))

    def __repr__(self) -> str:
        place = place_of(self.store.transport)
        return f"<Memory of namespace {self.store.keys.namespace!r}{f' at {place}' if place else ''}>"

    async def __aenter__(self) -> Self:
        try:
            await self.store.open()
            if self.workers is not None:
                await self.workers.start()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the workers and close the connections, except the caller's `client`.

        With the fallback, first replay its backlog, within `deadline_s`. If Redis does not accept an entry in that
        time, or if this call is cancelled, the entry is lost and an error is logged.
        """
        await run_to_end(self.store.transport, self._close())

    async def _close(self) -> None:
        async with AsyncExitStack() as steps:  # each step happens, even if one before it fails
            steps.callback(self.recall_cache.clear)
            steps.push_async_callback(self.store.aclose)
            if self.store.embedder is not None:
                steps.push_async_callback(self.store.embedder.aclose)
            if self.workers is not None:
                steps.push_async_callback(self.workers.stop)

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
        if type(session_id) is not str:
            session_id = plain(session_id) if isinstance(session_id, str) else ""
        owner = None if owner is None else check_owner(owner)
        calls = self._calls(session_id, owner) if policy is None else self._session_calls(session_id, owner, policy)
        return Session(self.store, calls, self.recall_cache, self._on_append)

    def project(self, name: str) -> Project:
        """Return the handle of a project, without I/O.

        Raises:
            InvalidItem: The name is invalid.
        """
        return self._projects(plain(name) if isinstance(name, str) else "")

    def record(
        self, record_id: str, *, tag: str | None = None, owner: str | None = None, ttl_s: float | None = None
    ) -> Record:
        """Return the handle of a record, without I/O: fields and an order of members, see `redismem.record`.

        Args:
            record_id: The id of the record, unique in the namespace: any string of 1 to 1,024 bytes.
            tag: The records of one tag can be written together. Give a record the same tag each time. `None` means its
                id.
            owner: The person whom the record belongs to, as in `session()`: an id of 1 to 256 bytes.
            ttl_s: The time to live in seconds. Each write sets it anew. `None` means that a write lets the record
                persist.

        Raises:
            InvalidRecord: The id or the tag is empty or too long, or `ttl_s` is out of range.
            InvalidSessionId: The owner is invalid.
        """
        from redismem.record.record import open_record  # no turn needs it

        return open_record(self.store, record_id, tag, owner, ttl_s)

    async def records(
        self,
        prefix: str = "",
        limit: int = 100,
        cursor: str | None = None,
        *,
        owner: str | None = None,
        newest: bool = False,
        fields: Sequence[bytes] = (),
    ) -> RecordPage:
        """Return a page of the records whose ids begin with a prefix, by id.

        Args:
            prefix: The beginning of the ids. "" lists all records.
            limit: The number of records per page, 1 to 10,000. A page has fewer if some of them have expired.
            cursor: The cursor of the previous page. `None` starts at the first page.
            owner: Only the records that were created with this owner, by an index of their owners.
            newest: True lists the records that were updated last, newest first, on one page: see `Change.updated_us`.
            fields: The fields to read of each record. Choose a limit that suits their size.

        Raises:
            InvalidSessionId: The owner is invalid.
            InvalidRecord: A field is not 1 to 4,096 bytes.
            ValueError: The limit is out of range, or the cursor does not come from a page.
            StoreUnavailable: Redis does not answer before the deadline.
        """
        from redismem.record.listing import list_records  # no turn needs it

        return await list_records(self.store, prefix, limit, cursor, owner, fields, newest=newest)

    @property
    def transcripts(self) -> Transcripts:
        """The conversations that frameworks keep in records, to list and read as messages."""
        from redismem.record.transcripts.transcripts import Transcripts  # no turn needs it

        return Transcripts(self.store)

    def _open_project(self, name: str) -> Project:
        from redismem.project.project import Project  # half of the package, which only projects need

        return Project(self.store, name, sessions=self.session)

    def _session_calls(self, session_id: str, owner: str | None, policy: Policy | None = None) -> SessionCalls:
        limits = self._append_limits
        if policy is not None:
            limits = append_limits(self.settings, encode_policy(policy), policy.zone)
            warn_of_timeout(policy.idle_timeout_s)
        store, keys = self.store, self.store.keys.session(session_id)
        return SessionCalls(keys, self.settings, self._count_tokens, limits, store.clock, owner, store.sender)

    @staticmethod
    def new_session_id() -> str:
        """Return a new session id: a UUIDv7, which is unique and sorts by time."""
        return ids.new_session_id()

    async def ping(self) -> bool:
        """Return True if Redis answers.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
        """
        return await self.store.ping()

    async def count(self) -> int:
        """Return the number of live sessions in the namespace: sessions that were active within the idle timeout.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
        """
        return await self.store.run(namespace_calls.count(self.store.keys, await self._alive_since_ms()))

    async def sessions(
        self,
        limit: int = 100,
        cursor: str | None = None,
        *,
        owner: str | None = None,
        newest: bool = False,
        include_idle: bool = False,
    ) -> SessionPage:
        """Return a page of the live sessions, most recently active first.

        Args:
            limit: The number of sessions per page, 1 to 10,000.
            cursor: The cursor of the previous page. `None` starts at the first page.
            owner: Only the sessions that were begun with this owner, idle ones too, at a cost that grows with all of
                them.
            newest: True also reads the title of each session and the beginning of its last message.
            include_idle: True also lists sessions past the idle timeout of the settings: those whose policy gives them
                a longer one, and those that have ended and that no worker has swept yet.

        Raises:
            InvalidSessionId: The owner is invalid.
            ValueError: The limit is out of range, or the cursor does not come from a page.
            StoreUnavailable: Redis does not answer before the deadline.
        """
        from redismem.session import listing  # no turn needs it

        if owner is not None:
            return await listing.list_owned(self.store, check_owner(owner), limit, cursor, newest=newest)
        page = await read_sessions(self.store, limit, cursor, 0 if include_idle else await self._alive_since_ms())
        return await listing.describe(self.store, page) if newest else page

    async def forget(
        self, *, owner: str | None = None, prefix: str | None = None, on_progress: OnProgress | None = None
    ) -> ForgottenSessions:
        """Remove all sessions and records of an owner, or all whose id begins with `prefix`; prove that none is left.

        Removes all data of the sessions, copies in quarantine, records, and what this process has cached or not
        replayed yet. Then a scan of all keys must find none of them, and removes what has begun meanwhile. It takes
        time in proportion to all keys. Of projects it erases what leads to them. The report says what was not searched.

        Args:
            owner: The owner that they were begun with.
            prefix: The beginning of the ids. End it with your separator: `user-4` also names `user-42`.
            on_progress: A plain function that receives what was removed so far. It must return quickly.

        Raises:
            InvalidSessionId: Neither or both are given, or one is empty or invalid. Nothing was removed.
            ForgetIncomplete: Redis failed meanwhile, or other processes kept writing such sessions. Its `forgotten` is
                what was removed; the same call again removes the rest.
        """
        from redismem.memory import erasure  # no turn needs it

        return await erasure.forget(self.store, erasure.Wanted(owner, prefix), self.recall_cache, on_progress)

    def health(self) -> Health:
        """Return what this process knows about Redis, without I/O: up or down, since when and why, and the backlog.

        If the memory has workers, also return the queues that they poll for all pods of the namespace.
        """
        return replace(self.store.health(), holds=getattr(self.workers, "holds", ()))

    async def queues(self) -> Queues:
        """Return the queues of the namespace: lengths, first due times, session limit, and the last tick of a worker.

        It reads all shards, so it costs two round trips per 100 shards and one more.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
            InvalidTime: The memory's own clock returned an invalid time.
        """
        return (await depths_of(self.store)).queues()

    async def take(self, name: str, per_s: float, burst_count: int = 1) -> int:
        """Take one permit of a rate limit, which all callers in the namespace share by its name.

        Returns 0 if there was a permit, else the milliseconds to wait before the next try.

        Args:
            name: The name of the rate limit.
            per_s: Permits per second, 0.001 to 1,000,000.
            burst_count: The number of permits that may be taken at once after a pause, 1 to 1,000,000.

        Raises:
            ValueError: The rate or `burst_count` is out of range.
            StoreUnavailable: Redis does not answer before the deadline.
        """
        return await self.store.run(namespace_calls.take(self.store.keys, name, per_s, burst_count))

    async def server_time_ms(self) -> int:
        """Return the server's time, or the time of the memory's own clock, in milliseconds since 1970.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
            InvalidTime: The memory's own clock returned an invalid time.
        """
        return await self.store.server_time_ms()

    async def _alive_since_ms(self) -> int:
        return await self.server_time_ms() - self.settings.idle_timeout_ms

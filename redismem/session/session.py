"""The handle of one conversation, for asyncio. `blocking` runs these coroutines without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from redismem.concurrency.offload import run_both
from redismem.context.context import Context
from redismem.context.info import Policy, SessionInfo
from redismem.context.results import RecalledMessages, Receipt
from redismem.errors import CorruptSession, SessionNotFound
from redismem.events import Op
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.protocol.ids import session_hash
from redismem.protocol.session.append import AppendOptions
from redismem.protocol.session.calls import SessionCalls
from redismem.recall.cache import NO_CACHE, RecallCache
from redismem.session.background import PROJECT_TOKENS, Background, check_background
from redismem.session.editing import Editor
from redismem.session.paging import Scope, check, check_count, check_scope, narrow, needs_whole_window
from redismem.session.reading import Reader
from redismem.session.removing import Remover
from redismem.session.renewal import renew_aged
from redismem.session.reused_ids import check_duplicate
from redismem.session.state import SessionState
from redismem.session.turns import Turns
from redismem.settings.environment import warn_of_timeout
from redismem.store.store import Store

if TYPE_CHECKING:
    from redismem.recall.owner.search import OwnerRecall
    from redismem.recall.recall import Recall

T = TypeVar("T")
P = ParamSpec("P")

OnAppend = Callable[[str, Receipt], None]
"""A hook that is called after each append, with the session's id and the receipt."""


def _delegate(
    part: str, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]:
    """Return a method of `Session` that runs this method of a part, and has its signature and docstring."""

    @wraps(method)
    async def run(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await method(getattr(self, part), *args, **kwargs)

    return run


def _delegate_plain(part: str, method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Session, P], T]:
    """Return a method of `Session` as `_delegate` does, for a method that is not a coroutine."""

    @wraps(method)
    def run(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(getattr(self, part), *args, **kwargs)

    return run


class Session:
    """The handle of one conversation: messages, state and recall.

    A handle keeps no state and costs no I/O, so get one per turn or keep it. Any number of pods may share a session.

    Every method that calls Redis may raise StoreUnavailable, and OwnerMismatch if the handle names another owner than
    the session has. If the stored bytes of a session cannot be read, every read raises CorruptSession and leaves them
    as they are. The next method that writes moves its keys to `…:quarantine:<session>:<ms>`, logs an error, and
    finds an empty session. `set_aside()` does only that.
    """

    __slots__ = ("_calls", "_on_append", "_recall_cache", "_store")

    def __init__(
        self,
        store: Store,
        session_calls: SessionCalls,
        recall_cache: RecallCache = NO_CACHE,
        on_append: OnAppend | None = None,
    ) -> None:
        """Use `Memory.session` instead of this constructor."""
        self._store = store
        self._calls = session_calls
        self._recall_cache = recall_cache
        self._on_append = on_append

    # A part keeps nothing, and most turns use none: so each is made when it is used.
    @property
    def _state(self) -> SessionState:
        return SessionState(self._store, self._calls)

    @property
    def _reader(self) -> Reader:
        return Reader(self._store, self._calls)

    @property
    def _editor(self) -> Editor:
        return Editor(self._store, self._calls, self._reader, self._recall_cache)

    @property
    def _remover(self) -> Remover:
        return Remover(self._store, self._calls, self._editor)

    @property
    def _turns(self) -> Turns:
        return Turns(self, self._store, self._calls)

    def __repr__(self) -> str:
        return f"<Session {session_hash(self.id)} of namespace {self._store.keys.namespace!r}>"

    @property
    def id(self) -> str:
        """The session's id, unchanged."""
        return self._calls.keys.session_id

    async def append(self, *messages: Message | Shape, **options: Unpack[AppendOptions]) -> Receipt:
        """Append messages and change the state, all or nothing, and return the receipt. Creates a missing session.

        Args:
            messages: Dicts, `Message` objects, or objects with the fields of a message: from an SDK, pydantic or a
                dataclass. At least one.
            id: An id that makes the append idempotent. If one of the session's last 16 appends and state changes had
                this id, nothing is written, and the first receipt comes back with `duplicate=True`.
            expect: The context or receipt that the caller has seen: the append is refused if anything was appended
                since, or if the session was cleared. A bare last seq cannot tell a cleared session from its
                successor; 0 expects that the session has no message.
            confirm: The number of replicas that must acknowledge the append. `None` takes it from the settings.
            pin: True pins these messages: they stay verbatim before all other messages and are never summarised. False
                pins none of them. `None` pins messages with the role system or developer.
            merge: Params to set, see `merge()`. Similarly `waiting`, `last_intent`, `last_result`, `plan` and `title`,
                see `set_waiting()`, `set_last_intent()`, `set_last_result()`, `set_plan()` and `set_title()`.

        Raises:
            InvalidMessage: A message, the id or another argument is invalid.
            InvalidState: A param name or a state value cannot be stored.
            TooLarge: A message, the batch, a state value or the window exceeds its limit.
            Conflict: The session is not as `expect` says. `cleared` is True if it was cleared or has expired.
            IdReused: The id was used before, for other messages.
            Unconfirmed: The append was made, but too few replicas acknowledged it in time.
            WrongShards: Redis was emptied, and another process has begun the namespace with other shards. The append
                was made, but the other processes do not see it.
            InvalidSettings: There are no replicas that could acknowledge it.
        """
        receipt = await self._store.run(self._calls.append(messages, options), quarantine=True)
        if self._calls.is_heavy:
            self._start_moving_bodies()
        if receipt.created:
            await self._store.agreement.agree_again()
        if receipt.duplicate:
            await check_duplicate(self, messages, receipt, None)
        if self._on_append is not None:
            self._notify(receipt)
        return receipt

    def check(self, *messages: Message | Shape) -> None:
        """Check that messages can be stored, without I/O: an agent refuses an input before its model or tools run.

        Raises:
            InvalidMessage, TooLarge: `append()` would refuse the messages.
        """
        self._calls.append(messages, {})

    async def append_and_read(
        self,
        *messages: Message | Shape,
        recall: int | None = None,
        recall_scope: Scope = "session",
        project: Background | None = None,
        project_tokens: int = PROJECT_TOKENS,
        **options: Unpack[AppendOptions],
    ) -> Context:
        """Append messages and return the context after them, in one round trip and one transaction.

        Takes the options of `append()`; its receipt is `Context.receipt`.

        Args:
            messages: See `append()`.
            recall: A token budget of the quotation in the result of `Context.to_openai()`. `Context.recalled` then
                contains the earlier messages that match these ones best. Takes a second round trip if the session
                keeps originals.
            recall_scope: `"owner"` recalls from all conversations of the handle's owner, by words and days.
                `Message.session_id` then says of each recalled message where it was said.
            project: A project from `Memory.project()`. `Context.background` is then text about the items that these
                messages mention, read concurrently. If that fails, a warning is logged and it is empty.
            project_tokens: The token budget of the background, at least 50.

        Raises:
            InvalidItem: `project_tokens` is too small.
            InvalidSessionId: `recall_scope` is `"owner"`, and the handle has no owner. Nothing was appended.
            TypeError: `project` does not come from a memory of the same kind, async or blocking.
            ValueError: `recall` is not an integer of 0 or more, or `recall_scope` is unknown, or without `recall`.

        Also raises the errors of `append()`.
        """
        if project is not None:
            check_background(project, project_tokens)
            both = (
                self.append_and_read(*messages, recall=recall, recall_scope=recall_scope, **options),
                project.background(messages, project_tokens),
            )
            context, background = await run_both(self._store.transport, *both)
            context.background = background
            return context
        if recall_scope != "session":
            check_scope(recall_scope, self._calls.session_owner, self.id, has_budget=recall is not None)
        if self._store.behind:  # a call costs less if it is refused before it is encoded
            self._store.admit(Op.APPEND_AND_READ, self.id)
        call = self._calls.append_and_read(messages, options)
        if recall is None:
            context = await self._store.run(call, quarantine=True)
        else:
            check_count("recall", recall)
            context = await self._search_for(messages, recall_scope).search_in_turn(call, recall)
        if self._calls.is_heavy:
            self._start_moving_bodies()
        if context.receipt is not None and context.receipt.created:
            await self._store.agreement.agree_again()
        if context.receipt is not None and context.receipt.duplicate:
            await check_duplicate(self, messages, context.receipt, context)
        if self._on_append is not None:
            self._notify(context.receipt)
        return context

    async def recall(
        self, query: str, limit: int | None = None, max_tokens: int | None = None, *, scope: Scope = "session"
    ) -> RecalledMessages:
        """Search the session's originals and return the messages that match the query, oldest first.

        Searches by words, and by meaning if the memory has an embedder. Returns an empty list if the session does not
        exist or keeps no originals. `unsearched_count` of the list is above 0 if the search was not complete.

        Args:
            query: Text to search for, such as the user's question.
            limit: The number of best matches. Their neighbours and complete tool calls come in addition. `None` means
                8, or with a budget as many as fit.
            max_tokens: The token budget of the lines in which a turn quotes the messages. `None` means no budget.
            scope: `"owner"` searches all conversations of the handle's owner, by words and days: their originals and
                their windows, but not this session's window. The messages come by session, and `Message.session_id`
                names it.

        Raises:
            InvalidSessionId: `scope` is `"owner"`, and the handle has no owner.
            TypeError: The query is not a string.
            ValueError: `limit` or `max_tokens` is not an integer of 0 or more, or `scope` is unknown.
        """
        if not isinstance(query, str):
            raise TypeError(f"query must be a string, not {type(query).__name__}")
        check(limit, max_tokens=max_tokens)
        check_scope(scope, self._calls.session_owner, self.id)
        return await self._open_recall(query, scope).search(limit, max_tokens)

    def _search_for(self, messages: Sequence[Message | Shape], scope: Scope) -> Recall | OwnerRecall:
        """Return the search for what these messages ask."""
        from redismem.recall.recall import extract_query

        return self._open_recall(extract_query(messages), scope)

    async def _note_append(self, receipt: Receipt | None) -> None:
        """Do what follows an append that a turn has made."""
        if self._calls.is_heavy:
            self._start_moving_bodies()
        if receipt is not None and receipt.created:
            await self._store.agreement.agree_again()
        self._notify(receipt)

    def _open_recall(self, query: str, scope: Scope) -> Recall | OwnerRecall:
        if scope == "owner" and self._calls.session_owner is not None:
            from redismem.recall.owner.search import OwnerRecall

            return OwnerRecall(self._store, self._recall_cache, self._calls.session_owner, self.id, query)
        from redismem.recall.recall import Recall

        return Recall(self._store, self._recall_cache, self._calls.keys, query)

    async def read(
        self,
        limit: int | None = None,
        before: int | datetime | None = None,
        max_tokens: int | None = None,
        *,
        renew: bool = False,
    ) -> Context:
        """Return the context of the session; it is empty for an unknown session.

        `limit`, `before` and `max_tokens` keep the newest messages that satisfy all of them, possibly none. If they
        leave messages out, `is_part` is True. Summaries and pinned messages always stay, even beyond `max_tokens`.

        A partial context never separates a tool call from its results; it gets smaller instead. A result whose call has
        left the window stays.

        Args:
            limit: The number of messages, without pinned ones.
            before: A seq, or a datetime with a time zone: leave out this message and all later ones.
            max_tokens: The token budget of messages, summaries and pinned messages together.
            renew: True counts as use: renews the expiry behind the read, once a sixteenth of it has passed.

        Raises:
            ValueError: `limit` or `max_tokens` is not an integer of 0 or more, or the datetime has no time zone.
            TypeError: `before` is neither a seq nor a datetime.
        """
        check(limit, before, max_tokens)
        read_limit = limit if before is None else None
        context = await self._store.run(self._calls.read(read_limit, renew=renew))
        if renew:
            renew_aged(self._store, self._calls)
        if read_limit is not None and needs_whole_window(context):
            return narrow(await self.read(), limit, before, max_tokens)
        return narrow(context, limit, before, max_tokens)

    async def set_aside(self) -> bool:
        """Put the session into quarantine if it cannot be read, and return True if so. It then starts empty.

        For an agent that reads before it writes: after CorruptSession, it can go on without the history. An operator
        finds it by `redismem list quarantine`.
        """
        try:
            await self._store.run(self._calls.read(None))
            await self._store.run(self._calls.info())
        except CorruptSession as corrupt:
            await self._store.quarantine(corrupt)
            return True
        return False

    async def set_policy(self, policy: Policy) -> bool:
        """Set the policy of the session in place of its present one. Counts as use, like `touch()`.

        `Policy()` removes it: the settings of the processes count again. False means that there is no session.

        Raises:
            InvalidSettings: The policy is invalid.
        """
        call = self._calls.set_policy(policy)
        warn_of_timeout(policy.idle_timeout_s)
        return await self._store.run(call, quarantine=True)

    async def touch(self) -> bool:
        """Mark the session as active now and renew its expiry, as an append does. Return False if it does not exist."""
        return await self._store.run(self._calls.touch(), quarantine=True)

    async def info(self) -> SessionInfo:
        """Return counts, times and queue of the session.

        Raises:
            SessionNotFound: The session does not exist.
        """
        info = await self._store.run(self._calls.info())
        if info is None:
            raise SessionNotFound("there is no such session", self.id)
        return info

    telemetry = _delegate("_state", SessionState.telemetry)
    state = _delegate("_state", SessionState.state)
    params = _delegate("_state", SessionState.params)
    waiting = _delegate("_state", SessionState.waiting)
    last_intent = _delegate("_state", SessionState.last_intent)
    last_result = _delegate("_state", SessionState.last_result)
    plan = _delegate("_state", SessionState.plan)
    title = _delegate("_state", SessionState.title)
    update = _delegate("_state", SessionState.update)
    merge = _delegate("_state", SessionState.merge)
    set_waiting = _delegate("_state", SessionState.set_waiting)
    set_last_intent = _delegate("_state", SessionState.set_last_intent)
    set_last_result = _delegate("_state", SessionState.set_last_result)
    set_plan = _delegate("_state", SessionState.set_plan)
    set_title = _delegate("_state", SessionState.set_title)

    exists = _delegate("_reader", Reader.exists)
    tail = _delegate("_reader", Reader.tail)
    messages = _delegate("_reader", Reader.messages)

    turn = _delegate_plain("_turns", Turns.turn)
    follow = _delegate_plain("_turns", Turns.follow)
    stop = _delegate("_turns", Turns.stop)
    turn_of = _delegate("_turns", Turns.turn_of)

    clear = _delegate("_remover", Remover.clear)
    forget = _delegate("_remover", Remover.forget)
    prune = _delegate("_editor", Editor.prune)
    archive = _delegate("_editor", Editor.archive)
    pop = _delegate("_editor", Editor.pop)
    undo = _delegate("_editor", Editor.undo)
    rewrite = _delegate("_editor", Editor.rewrite)
    replace = _delegate("_editor", Editor.replace)
    unpin = _delegate("_editor", Editor.unpin)

    def _start_moving_bodies(self) -> None:
        from redismem.session.bodies import move_bodies  # reads the forms of messages, which most processes need not

        self._calls.is_heavy = False
        self._store.side_work.start(self.id, partial(move_bodies, self._store, self._calls))

    def _notify(self, receipt: Receipt | None) -> None:
        if self._on_append is not None and receipt is not None and not receipt.duplicate and not receipt.degraded:
            self._on_append(self.id, receipt)

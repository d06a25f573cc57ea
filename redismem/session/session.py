"""The handle of one conversation. For asyncio; `blocking` runs the same coroutines without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, Unpack

from redismem.concurrency.offload import together
from redismem.context import Context, Receipt
from redismem.errors import SessionNotFound, StoreUnavailable
from redismem.info import SessionInfo
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.protocol.ids import session_hash
from redismem.protocol.replies import telemetry
from redismem.protocol.session import edits as edit_calls
from redismem.protocol.session.append import AppendOptions
from redismem.protocol.session.calls import SessionCalls
from redismem.recall.bm25 import HITS_LIMIT
from redismem.recall.cache import NO_CACHE, RecallCache
from redismem.recall.originals import Originals
from redismem.recall.recall import Recall, said
from redismem.session import edits
from redismem.session.background import PROJECT_TOKENS, Background, check_background
from redismem.session.paging import Reading, check, check_count, lacks_others, narrowed
from redismem.session.state import SessionState
from redismem.store.store import Store

T = TypeVar("T")

OnAppend = Callable[[str, Receipt], None]
"""Told of each append: the session's id, and what the append did."""


class Session(SessionState):
    """One conversation. A handle without state of its own: make one a turn or keep it, from any number of pods.

    Every method that talks to Redis may raise StoreUnavailable. A session whose stored bytes cannot be read is put into
    quarantine under `…:quarantine:<session>:<ms>`, which is logged, and starts afresh.
    """

    __slots__ = ("_on_append", "_recall_cache")

    def __init__(
        self,
        store: Store,
        session_calls: SessionCalls,
        recall_cache: RecallCache = NO_CACHE,
        on_append: OnAppend | None = None,
    ) -> None:
        """`Memory.session` makes one."""
        super().__init__(store, session_calls)
        self._recall_cache = recall_cache
        self._on_append = on_append

    def __repr__(self) -> str:
        return f"<Session {session_hash(self.id)} of namespace {self._store.keys.namespace!r}>"

    @property
    def id(self) -> str:
        """The session's id, as it was given."""
        return self._calls.keys.session_id

    async def append(self, *messages: Message | Shape, **options: Unpack[AppendOptions]) -> Receipt:
        """Adds messages behind the others, and changes the state with them: all or nothing. Gives what it did.

        A message is a dict, a `Message`, or an object with a message's fields: of an SDK, of pydantic, a dataclass.
        `id` names this append: given again, nothing is written and the first receipt comes back with `duplicate=True`,
        for the session's last 16 appends and changes of state. `expect`: the last seq the caller has seen (0: no
        session). `confirm`: how many replicas must have it; None: as many as the settings say. `pin`: True to keep
        these messages as they are, before all others and never summarised, False not to; by default those in the role
        system or developer are. `merge`, `waiting`, `last_intent`, `last_result`, `plan`: as `merge()`,
        `set_waiting()` and the other setters. Raises InvalidMessage, InvalidState, TooLarge, Conflict,
        Unconfirmed, and InvalidSettings if there are no replicas to confirm it.
        """
        receipt = await self._run(self._calls.append(messages, options))
        if self._on_append is not None:
            self._tell(receipt)
        return receipt

    async def append_and_read(
        self,
        *messages: Message | Shape,
        recall: int | None = None,
        project: Background | None = None,
        project_tokens: int = PROJECT_TOKENS,
        **options: Unpack[AppendOptions],
    ) -> Context:
        """The same append, and the context after it, in the same round trip and transaction.

        The receipt is `Context.receipt`. `recall`: `Context.recalled` holds earlier messages that fit these, so many
        tokens at most; that takes a second round trip, if any are kept. `project`: a `Memory.project`, of which the
        context then has as `background` what these messages speak of, in at most so many tokens. It is asked at the
        same time, in at most two round trips; if it does not answer, that is logged and there is none. Raises as
        `append` does, and InvalidItem for fewer than 50 tokens.
        """
        if project is not None:
            check_background(project, project_tokens)
            both = (
                self.append_and_read(*messages, recall=recall, **options),
                project.background(messages, project_tokens),
            )
            context, background = await together(self._store.transport, *both)
            context.background = background
            return context
        call = self._calls.append_and_read(messages, options)
        if recall is None:
            context = await self._run(call)
        else:
            check_count("recall", recall)
            context = await Recall(self._store, self._recall_cache, self._calls.keys, said(messages)).in_turn(
                call, recall
            )
        if self._on_append is not None:
            self._tell(context.receipt)
        return context

    async def recall(self, query: str, limit: int = HITS_LIMIT, max_tokens: int | None = None) -> list[Message]:
        """Earlier messages that the query is about, oldest first: of the kept ones that a summary covers.

        The best `limit`, with neighbours and whole tool calls; `max_tokens` at most. Raises TypeError for a query that
        is no string.
        """
        if not isinstance(query, str):
            raise TypeError(f"a query is a string, not one of the type {type(query).__name__}")
        check(limit, max_tokens=max_tokens)
        return await Recall(self._store, self._recall_cache, self._calls.keys, query).asked(limit, max_tokens)

    async def read(
        self, limit: int | None = None, before: int | datetime | None = None, max_tokens: int | None = None
    ) -> Context:
        """The context: empty for an unknown session. A part of it with `limit`, `before` or `max_tokens`.

        `limit` counts messages, `max_tokens` summaries too; `before` is a seq or a datetime. Pinned messages count
        toward `max_tokens` only. They and summaries always stay, be they more than that; of the others the newest that
        fit are left, none if the last is too long: then `is_part` is True. A part never holds a tool result without its
        call, nor a call without the result it has: rather it is smaller. A result whose call is in the window no more
        stays.
        """
        check(limit, before, max_tokens)
        read_limit = limit if before is None else None
        try:
            context = await self._run(self._calls.read(read_limit))
        except StoreUnavailable as refused:
            if refused.reason != "OOM":
                raise
            context = await self._run(self._calls.read(read_limit, by_script=True))
        if read_limit is not None and lacks_others(context):
            return narrowed(await self.read(), limit, before, max_tokens)
        return narrowed(context, limit, before, max_tokens)

    async def messages(
        self, limit: int | None = None, before: int | datetime | None = None, include_originals: bool = False
    ) -> list[Message]:
        """The newest `limit` messages before a seq or a datetime, oldest first: those no summary covers, pinned or not.

        `include_originals`: those that a summary covers too, if they are kept. Read page by page: what is summarised
        meanwhile may be missing. Raises SessionNotFound.
        """
        check(limit, before)
        reading, originals = (
            Reading(self._calls, limit, before, include_originals),
            Originals(self._store, self._calls.keys),
        )
        while (call := reading.next()) is not None:
            page = await self._run(call)
            reading.take(page, await originals.messages(page))
        if (call_for_pinned := reading.pinned()) is not None:
            reading.take_pinned(await self._run(call_for_pinned))
        return reading.messages()

    async def clear(self, missing_ok: bool = True) -> bool:
        """Removes everything of the session. False if there was none; raises SessionNotFound unless `missing_ok`."""
        self._recall_cache.forget(self.id)
        epoch = await self._run(self._calls.epoch())
        # A session that was seen and is gone counts as cleared: the first reply may have been lost.
        cleared = await self._run(self._calls.clear(epoch)) or epoch != ""
        if not cleared and not missing_ok:
            raise SessionNotFound("there is no such session to clear", self.id)
        return cleared

    async def prune(self, max_messages: int) -> int:
        """Drops the oldest messages for good, but for the newest `max_messages`. Gives how many were dropped.

        More are kept if a tool call would lose its result. Summaries, pinned messages and state stay. Raises
        SessionNotFound.
        """
        check_count("max_messages", max_messages)
        while True:
            view = await self._view("prune")
            call = edit_calls.prune(self._calls, view, max_messages)
            if call is None:
                return 0
            dropped = await self._run(call)
            if dropped:
                return dropped

    async def pop(self, count: int = 1, *, expect: int | None = None) -> list[Message]:
        """Takes the newest `count` messages back, for good, and gives them, oldest first; all, if there are fewer.

        More are taken if a tool call would lose its result. Pinned messages stay. No seq is given twice, and the pop
        takes one itself: `last_seq` is higher after it. `expect`: the last seq the caller has seen. Raises Conflict if
        somebody wrote meanwhile, NotInWindow for what a summary covers, TooLarge, SessionNotFound.
        """
        if type(count) is not int or count < 1:
            raise ValueError("count is an integer, 1 or more")
        view = await self._view("pop", expect)
        return await self._pop(view, edits.newest(view.context, count, self._store.settings.max_batch_count))

    async def undo(self, *, expect: int | None = None) -> list[Message]:
        """Takes the last turn back: the user's last message and what follows it. Otherwise as `pop`.

        Gives nothing if there is no message of the user's.
        """
        view = await self._view("undo", expect)
        return await self._pop(view, edits.last_turn(view.context, self._store.settings.max_batch_count))

    async def _pop(self, view: edit_calls.View, popped: list[Message]) -> list[Message]:
        if popped and not await self._run(edit_calls.pop(self._calls, view, popped)):
            raise edits.changed(view.context)
        return popped

    async def replace(self, which: int | Message, message: Message | dict[str, Any]) -> Message:
        """Puts another message in the place of one of the window, or of a pinned one, and gives it as it is stored.

        `which`: a seq, or a message as it was read: then it must still be as it was. It is pinned if the other was, and
        has its time. Both must make the same tool calls and hold the same results. Raises Conflict if
        somebody was faster, NotInWindow for what a summary covers, InvalidMessage, TooLarge, SessionNotFound.
        """
        view = await self._view("replace")
        while True:
            old = which = edits.chosen(view.context, which)
            edits.check_replacement(view.context, old, message)
            changed = await self._replace(view, old, edit_calls.replacement(self._calls, old, message))
            if changed is not None:
                return changed
            view = await self._view("replace")  # if it is still the same, it only has another place

    async def unpin(self, which: int | Message) -> Message:
        """Makes a pinned message one like the others, and gives it.

        In the window it stays at its place. One that has left the window leaves the context with this, as no summary
        covers it; among kept originals it stays. `which`, and what is raised: as of `replace`.
        """
        view = await self._view("unpin")
        while True:
            old = which = edits.chosen(view.context, which)
            changed = await self._replace(view, old, edit_calls.unpinned(old)) if old.pinned else old
            if changed is not None:
                return changed
            view = await self._view("unpin")  # likewise

    async def _replace(self, view: edit_calls.View, old: Message, changed: edit_calls.Changed) -> Message | None:
        kept = await Originals(self._store, self._calls.keys).changed(view, old, changed)
        return await self._run(edit_calls.replace(self._calls, view, old, changed, kept))

    async def _view(self, op: str, expect: int | None = None) -> edit_calls.View:
        view = await self._run(edit_calls.window(self._calls))
        if view is None:
            raise SessionNotFound(f"there is no such session to {op}", self.id)
        edits.check_expected(view.context, expect)
        return view

    async def exists(self) -> bool:
        """Whether there is such a session."""
        return await self._run(self._calls.exists())

    async def touch(self) -> bool:
        """Makes the session active now, as an append does. False if there is none."""
        return await self._run(self._calls.touch())

    async def info(self) -> SessionInfo:
        """The numbers of the session. Raises SessionNotFound."""
        known = await self._run(self._calls.info())
        if known is None:
            raise SessionNotFound("there is no such session", self.id)
        return known

    async def telemetry(self) -> dict[str, Any]:
        """`history_count`, `params_keys`, `waiting_for_param`: numbers and names, never values. Fit for a log."""
        return telemetry(await self._run(self._calls.info()))

    def _tell(self, receipt: Receipt | None) -> None:
        if self._on_append is not None and receipt is not None and not receipt.duplicate and not receipt.degraded:
            self._on_append(self.id, receipt)

"""The turns of one conversation: begin, follow, stop and look up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Unpack

from redismem.concurrency.offload import run_both
from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import CorruptSession, InvalidMessage, SessionNotFound, StoreUnavailable
from redismem.live.beginning import Beginning, WhenBusy
from redismem.live.following import follow, turn_of
from redismem.live.info import TurnInfo
from redismem.live.live import find_running
from redismem.live.turn import Turn
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.protocol.call import Call
from redismem.protocol.live.calls import look_up_turn, stop_turn
from redismem.protocol.live.turns import check_reason, turn_name
from redismem.protocol.session.append import AppendOptions, TurnOptions
from redismem.protocol.session.calls import SessionCalls
from redismem.session.background import PROJECT_TOKENS, Background, check_background
from redismem.session.paging import Scope, check_count, check_scope
from redismem.session.reused_ids import check_stored
from redismem.store.store import Store

if TYPE_CHECKING:
    from redismem.recall.owner.search import OwnerRecall
    from redismem.recall.recall import Recall


class Conversation(Protocol):
    """The session, as its turns use it."""

    async def append(self, *messages: Any, **options: Any) -> Receipt:
        """Append messages."""

    async def append_and_read(self, *messages: Any, **options: Any) -> Context:
        """Append messages, and return the context after them."""

    async def messages(
        self, limit: int | None = None, before: int | datetime | None = None, include_originals: bool = False
    ) -> list[Message]:
        """Return the newest messages."""

    async def exists(self) -> bool:
        """Return True if the session exists."""

    async def touch(self) -> bool:
        """Renew the session's expiry."""

    def _search_for(self, messages: Sequence[Message | Shape], scope: Scope) -> Recall | OwnerRecall:
        """Return the search for what these messages ask."""

    async def _note_append(self, receipt: Receipt | None) -> None:
        """Do what follows an append."""


class _Extras(NamedTuple):
    """Options of a context."""

    recall: int | None
    recall_scope: Scope
    project: Background | None
    project_tokens: int


class Turns:
    """The part of a session for its turns. It is what a turn knows of its session."""

    __slots__ = ("_session", "calls", "store")

    def __init__(self, session: Conversation, store: Store, session_calls: SessionCalls) -> None:
        self._session = session
        self.store = store
        self.calls = session_calls

    @property
    def id(self) -> str:
        """The session's id."""
        return self.calls.keys.session_id

    def turn(
        self,
        /,
        *messages: Message | Shape,
        id: str,
        when_busy: WhenBusy = "refuse",
        wait_s: float = 30,
        recall: int | None = None,
        recall_scope: Scope = "session",
        project: Background | None = None,
        project_tokens: int = PROJECT_TOKENS,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Begin a turn: `async with session.turn(message, id=…) as turn`, see `Turn`.

        Entering the block takes one round trip: it stores the messages, takes the session's lease, and reads the
        context. Nobody else writes a reply to this session until the block ends. Where an id is known, no model should
        be asked again: the turn is refused with TurnKnown, which says how to get its answer. A failed or lost turn
        without a reply begins again under its id, as long as its messages are the newest.

        While Redis is down, the fallback takes the messages and the reply. Such a turn is known in this process alone.

        Args:
            messages: The question, as in `append()`.
            id: The name of the turn, such as the client's idempotency key: 1 to 256 bytes. It also makes the append of
                the messages idempotent.
            when_busy: What happens while another turn of the session runs. `"refuse"` raises TurnBusy. `"wait"` waits
                for it, in order of arrival. `"interrupt"` stops it, then waits.
            wait_s: The longest wait in seconds.
            recall: See `append_and_read()`; likewise `recall_scope`, `project` and `project_tokens`.

        Takes the other options of `append()`, and raises its errors.

        Raises:
            TurnBusy: Another turn runs, or too many wait, or the wait was too long. Nothing was written.
            TurnKnown: A turn with this id runs or has ended. Nothing was written.
            IdReused: The id was used for other messages.
            Conflict: The session was cleared or forgotten while the turn waited. Nothing was written.
            StoreUnavailable: Redis did not answer in time. If `may_be_done`, the turn may have begun: a retry says so.
        """
        if when_busy not in ("refuse", "wait", "interrupt"):
            raise ValueError(f"when_busy is refuse, wait or interrupt, not {when_busy!r}")
        turn_name(id)
        if not messages:
            raise InvalidMessage("a turn needs a message", self.id)
        if project is not None:
            check_background(project, project_tokens)
        if recall is not None:
            check_count("recall", recall)
        if recall_scope != "session":
            check_scope(recall_scope, self.calls.session_owner, self.id, has_budget=recall is not None)
        extras = _Extras(recall, recall_scope, project, project_tokens)
        read, read_local = partial(self._read, messages, extras), partial(self._read_local, messages, extras)
        return Turn(Beginning(self, messages, id, options, when_busy, wait_s, read, read_local))

    async def _read(self, messages: Sequence[Message | Shape], extras: _Extras, call: Call[Context]) -> Context:
        """Run the call that begins a turn, and add to its context what the caller asked for."""
        if extras.project is not None:
            begin = self._read(messages, extras._replace(project=None), call)
            background = extras.project.background(messages, extras.project_tokens)
            context, text = await run_both(self.store.transport, begin, background)
            context.background = text
            return context
        if extras.recall is None:
            context = await self.store.run(call, quarantine=True)
        else:
            search = self._session._search_for(messages, extras.recall_scope)
            context = await search.search_in_turn(call, extras.recall)
        await self._session._note_append(context.receipt)
        return context

    async def _read_local(
        self, messages: Sequence[Message | Shape], extras: _Extras, options: AppendOptions
    ) -> Context:
        return await self._session.append_and_read(*messages, **extras._asdict(), **options)

    def follow(
        self, after: str | None = None, turn: str | None = None
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Return an async iterator over the events of a turn, with their ids: first those so far, then those to come.

        It ends with the event `end`. Each listener gets each event once and in order, whichever process writes the
        turn. An event `reset` has no id. It tells to drop the events so far, because Redis lost them or their log has
        expired: the turn follows anew.

        Args:
            after: The id of an event: go on behind it. `None` begins with the first event.
            turn: The id of a turn, running or ended. `None` means the turn of `after`, or else the running turn.
                Without one, the iterator ends at once.

        Raises:
            ValueError: `after` is not the id of an event.
            InvalidMessage: `turn` is not a valid id.
            SessionNotFound: The session knows no turn with the id.
        """
        return follow(self, after, turn)

    async def stop(self, reason: str = "stopped", turn: str | None = None) -> bool:
        """Stop the running turn, in whichever process it runs, and return True if one was running.

        The block of the turn is cancelled, so the stream of its model ends, and the text so far is stored. The turn may
        still end as done, if its block had ended already.

        Args:
            reason: Becomes `Turn.reason` and part of the last event: 1 to 40 printable ASCII characters.
            turn: The id of the turn to stop, as in `Session.turn`. `None` stops whichever runs.

        Raises:
            InvalidMessage: The reason has another form, or the id is invalid.
        """
        check_reason(reason)
        name = None if turn is None else turn_name(turn)
        await self.check_owner()
        writing = find_running(self.store, self.id)
        if writing is not None and (name is None or name.hex() == writing.field.name):
            writing.on_stop(reason)
            return True
        generation = None
        if name is None:
            # A stop that is resent must not stop the next turn, so it names the turn that it means.
            running = (await self.store.run(look_up_turn(self.calls.keys, b""))).turn
            if running is None or not running.is_running:
                return False
            generation = running.generation
        return await self.store.run(stop_turn(self.calls.keys, reason, generation=generation, name=name))

    async def turn_of(self, id: str) -> TurnInfo | None:
        """Return the turn with this id: running, or ended with its seqs and reply; `None` if the session knows none.

        A session knows its last 64 turns; if it keeps originals, all of them, as long as it lives.

        Raises:
            InvalidMessage: The id is not a string of 1 to 256 bytes.
        """
        turn_name(id)
        await self.check_owner()
        return await turn_of(self, id)

    async def append(self, *messages: Any, **options: Any) -> Receipt:
        """Append messages."""
        return await self._session.append(*messages, **options)

    async def touch(self) -> bool:
        """Renew the session's expiry."""
        return await self._session.touch()

    async def check_owner(self) -> None:
        """Raise OwnerMismatch if the session has another owner than the handle names."""
        if self.calls.session_owner is not None:
            await self._session.exists()

    async def check_question(self, messages: Sequence[Message | Shape], first_seq: int) -> None:
        """Raise IdReused if the session has other messages than these from this seq on."""
        if not first_seq:
            return
        last_seq = first_seq + len(messages) - 1
        stored: list[Message] = []
        with contextlib.suppress(SessionNotFound, StoreUnavailable, CorruptSession):
            stored = await self._session.messages(len(messages), last_seq + 1, include_originals=True)
        fault = "the turn id was used before, for another question"
        check_stored(messages, (first_seq, last_seq), stored, self.id, fault=fault)

    async def reply(self, seq: int) -> Message | None:
        """Return a message; `None` if the session does not keep it any more."""
        with contextlib.suppress(SessionNotFound):
            found = await self._session.messages(1, seq + 1, include_originals=True)
            return next((each for each in found if each.seq == seq), None)
        return None

"""Begin a turn: at once, after the turns that run or wait, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, cast

from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import RedismemError, StoreUnavailable, TurnBusy, TurnKnown, Unconfirmed
from redismem.live.ending import end_if_dead, give_up
from redismem.live.events import END
from redismem.live.live import Live, live_of
from redismem.messages.message import Message
from redismem.protocol import turn_refusals as refusals
from redismem.protocol.call import Call
from redismem.protocol.ids import nonce
from redismem.protocol.live.calls import Begun, TurnEnd, append_turn, begin_turn, stop_turn
from redismem.protocol.live.turns import TurnField, TurnRecord, message_line, new_holder, question_id, turn_name
from redismem.protocol.session.append import AppendOptions, TurnOptions
from redismem.protocol.session.calls import SessionCalls
from redismem.store.store import Store

WhenBusy = Literal["refuse", "wait", "interrupt"]

_LOOK_S = 1.5
"""The pause of a waiting turn: its place lapses after 5 s without a sign of life."""
INTERRUPTED = "interrupted"


class Host(Protocol):
    """The session, as its turns use it."""

    @property
    def id(self) -> str:
        """The session's id."""

    @property
    def store(self) -> Store:
        """The store."""

    @property
    def calls(self) -> SessionCalls:
        """The calls of the session."""

    async def append(self, *messages: Any, **options: Any) -> Receipt:
        """Append messages."""

    async def touch(self) -> bool:
        """Renew the session's expiry."""

    async def check_question(self, messages: Sequence[Any], first_seq: int) -> None:
        """Raise IdReused if the session has other messages than these from this seq on."""

    async def check_owner(self) -> None:
        """Raise OwnerMismatch if the session has another owner than the handle names."""

    async def reply(self, seq: int) -> Message | None:
        """Return a message; `None` if the session does not keep it any more."""


class BegunTurn(NamedTuple):
    """A turn that has begun."""

    context: Context
    field: TurnField
    seqs: tuple[int, int]
    """The first and last seq of the question."""
    kept_s: float
    """The seconds for which the session lives without activity."""
    is_local: bool = False
    """True if Redis knows nothing of the turn, because it is down."""


@dataclass(slots=True)
class Beginning:
    """The options of a turn, until it has begun."""

    host: Host
    messages: Sequence[Any]
    turn_id: str
    options: TurnOptions
    when_busy: WhenBusy
    wait_s: float
    run: Callable[[Call[Context]], Awaitable[Context]]
    """Runs the call that appends the question, and adds to the context what the caller asked for."""
    run_local: Callable[[AppendOptions], Awaitable[Context]]
    """Appends the question while Redis is down."""
    _holder: str = field(default_factory=new_holder)
    _again: TurnRecord | None = None
    _has_waited: bool = False

    async def begin(self) -> BegunTurn:
        """Begin the turn. Raises the errors of `Session.turn`."""
        live = live_of(self.host.store)
        self._check_not_nested(live)
        try:
            return await self._begin(live)
        except (asyncio.CancelledError, TurnBusy) as error:
            if self.when_busy != "refuse" or isinstance(error, asyncio.CancelledError):
                live.spawn(give_up(self.host.store, self.host.calls.keys, self._holder))
            raise

    async def _begin(self, live: Live) -> BegunTurn:
        clock = asyncio.get_running_loop().time
        until_s = clock() + self.wait_s
        interrupted = ""
        while True:
            try:
                return await self._try()
            except TurnKnown as known:
                if known.how == "running" and not await end_if_dead(self.host.store, self.host.calls.keys):
                    continue
                await self._check_again(known)
            except TurnBusy as busy:
                self._has_waited = self.when_busy != "refuse"
                if busy.turn and not busy.left_ms and not await end_if_dead(self.host.store, self.host.calls.keys):
                    continue
                left_s = until_s - clock()
                if self.when_busy == "refuse" or left_s <= 0 or not busy.may_wait:
                    raise
                if self.when_busy == "interrupt" and busy.turn and interrupted != busy.turn:
                    interrupted = busy.turn
                    await self.host.store.run(
                        stop_turn(self.host.calls.keys, INTERRUPTED, generation=busy.turn, name=None)
                    )
                await self._wait(live, min(left_s, _LOOK_S))
            except StoreUnavailable:
                if self.host.store.fallback is None:
                    raise
                return await self._begin_local()

    async def _try(self) -> BegunTurn:
        ticket = None if self.when_busy == "refuse" else self._holder
        call = begin_turn(
            self.host.calls,
            self.messages,
            cast(AppendOptions, self.options),
            turn_id=self.turn_id,
            holder=self._holder,
            ticket=ticket,
            has_waited=self._has_waited,
            again=self._again,
        )
        begun: list[Begun] = []
        decode = call.decode

        def keep(*answers: Any) -> Context:
            begun[:] = [decode(*answers)]
            return begun[0].context

        try:
            context = await self.run(replace(cast(Call[Any], call), decode=keep))
        except Unconfirmed:
            if begun:
                await self._end_unconfirmed(begun[0])
            raise
        (got,) = begun
        assert context.receipt is not None
        return BegunTurn(context, got.turn, self._seqs(context.receipt), got.kept_ms / 1000)

    def _seqs(self, receipt: Receipt) -> tuple[int, int]:
        """Return the first and last seq of the question."""
        question = receipt if self._again is None else self._again
        return question.first_seq, question.last_seq

    async def _end_unconfirmed(self, begun: Begun) -> None:
        """End a turn that too few replicas have, so that it can begin again under its id."""
        end = TurnEnd("failed", Unconfirmed.__name__, None, has_reply=False)
        assert begun.receipt is not None
        offset = len(message_line(*self._seqs(begun.receipt)))
        call = append_turn(self.host.calls, begun.turn, [], {}, offset=offset, number=1, end=end)
        call.confirm = 0
        with contextlib.suppress(RedismemError):  # or else its lease ends
            await self.host.store.run(call)

    async def _begin_local(self) -> BegunTurn:
        """Begin a turn of this process alone: the fallback takes the question."""
        options: AppendOptions = {"id": question_id(self.turn_id), **self.options}
        context = await self.run_local(options)
        assert context.receipt is not None
        seqs = context.receipt.first_seq, context.receipt.last_seq
        generation = f"0-{nonce()[:8].decode()}"
        field = TurnField("running", generation, self._holder, turn_name(self.turn_id).hex(), seqs[0])
        return BegunTurn(context, field, seqs, 0.0, is_local=True)

    def _check_not_nested(self, live: Live) -> None:
        writing = live.running.get(self.host.id)
        if writing is None:
            return
        if writing.body is asyncio.current_task():
            raise refusals.nested(self.host.id, writing.field.generation)
        if writing.is_local:
            if writing.field.name == turn_name(self.turn_id).hex():
                raise refusals.running(self.host.id, writing.field.generation, writing.field.first_seq)
            raise refusals.busy(self.host.id, writing.field.generation, 0)

    async def _check_again(self, known: TurnKnown) -> None:
        """Raise, unless the turn has ended without a reply: it may begin again if nothing was said since."""
        await self.host.check_question(self.messages, known.first_seq)
        if self._again is not None or known.reply_seq or known.outcome not in ("failed", "lost"):
            raise known
        self._again = TurnRecord(known.first_seq, known.last_seq, known.outcome, has_reply=False)

    async def _wait(self, live: Live, longest_s: float) -> None:
        """Wait until the running turn has ended, or until it is time to renew the place in the line."""
        ended = _Ended()
        keys = self.host.calls.keys
        is_pushed = await live.subscriptions.add(keys.live, ended)
        try:
            seconds = longest_s if is_pushed else min(longest_s, self.host.store.settings.live_poll_s)
            async with asyncio.timeout(seconds):
                await ended.event.wait()
        except TimeoutError:
            pass
        finally:
            live.subscriptions.remove(keys.live, ended)


class _Ended:
    """Listens for the end of a turn."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def on_message(self, payload: bytes) -> None:
        """Notice the last event of a turn."""
        if END in payload:
            self.event.set()

    def on_gap(self) -> None:
        """The end may have been missed."""
        self.event.set()

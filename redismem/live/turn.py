"""One turn: a question, the events of the answer while it is written, and the reply, stored exactly once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import ModelFailed, RedismemError, StoreUnavailable, TurnLost, Unconfirmed
from redismem.live.beginning import Beginning
from redismem.live.events import join_text
from redismem.live.live import live_of
from redismem.live.writing import Writing
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.protocol import turn_refusals as refusals
from redismem.protocol.call import Call
from redismem.protocol.live.calls import Appended, TurnEnd, append_turn
from redismem.protocol.live.turns import end_line, message_line
from redismem.protocol.session.state import StateChanges, check_options

T = TypeVar("T")
Said = str | Mapping[str, Any]
Outcome = Literal["", "done", "stopped", "failed", "lost"]

_PAUSE_S = 0.1
_ACTIVE_S = 60.0
_NOT_ENTERED = "enter the turn first: async with session.turn(…) as turn"
CANCELLED, CLOSED, MODEL_FAILED = "cancelled", "closed", "the model failed"


class Turn:
    """One turn of a session: `async with session.turn(message, id=…) as turn`.

    The block asks a model with `turn.context`, and passes on what it says with `write`. At the end of the block, the
    text since the last `append` is stored as the reply. The turn then has an outcome: done, stopped, failed, if the
    block raised, or lost. The reply of a turn that is not done has `metadata["incomplete"]`, which says why.

    While the block runs, no other turn of the session does, in any process. Others can `follow` it and `stop` it: a
    stop cancels the block as `asyncio.timeout` does, and the program goes on behind the block.

    Raises on entry: see `Session.turn`. Raises at the end of the block:
        TurnLost: Another process has ended the turn, or the session is gone. Nothing more was stored.
        Unconfirmed: The turn has ended, but too few replicas have it.
        StoreUnavailable: Redis was away for two leases. What was said may be stored later, as a turn that is lost.
        RedismemError: The reply was refused, as by `append`. The turn has failed, without a reply.
    """

    def __init__(self, beginning: Beginning) -> None:
        self._beginning = beginning
        self._host = beginning.host
        self.id = beginning.turn_id
        self.metadata: Mapping[str, Any] = {}
        """Further metadata of the reply, beside `incomplete`."""
        self.tool_calls: Sequence[Mapping[str, Any]] = ()
        """Calls of the reply, in OpenAI's format, of tools that the client runs. A turn that is not done has none."""
        self._usage: Mapping[str, Any] | None = None
        self.outcome: Outcome = ""
        """done, stopped, failed or lost, once the block has ended."""
        self.reason = ""
        """The reason of an outcome other than done."""
        self.reply_seq = 0
        """The seq of the reply, once the block has ended; 0 without a reply."""
        self._context: Context | None = None
        self._changes: StateChanges = {}
        self._unconfirmed: Unconfirmed | None = None
        self._appends_count = 0
        self._appending = asyncio.Lock()
        self._is_exiting = self._is_cancelled = False
        self.is_lost = False
        """True once the turn is no longer this caller's."""
        self.stop_reason = ""
        """The reason of a stop, as soon as it arrives."""

    async def __aenter__(self) -> Self:
        begun = await self._beginning.begin()
        self._context = begun.context
        self._keep_task()
        self._live = live_of(self._host.store)
        limit_bytes = self._host.store.settings.max_turn_bytes
        keys = self._host.calls.keys
        line = message_line(*begun.seqs)
        self._writing = Writing(keys, begun.field, line, limit_bytes, self._stop, self._lose)
        self._writing.is_local = begun.is_local
        self._live.begin(self._writing)
        self._keeping = None if begun.is_local else asyncio.create_task(self._keep_active(begun.kept_s))
        return self

    @property
    def context(self) -> Context:
        """The context after the question, as `append_and_read` returns it. There is none before the block."""
        if self._context is None:
            raise RuntimeError(_NOT_ENTERED)
        return self._context

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self._host.id

    @property
    def generation(self) -> str:
        """The name of this turn in the ids of its events: never used again, and not the caller's id."""
        return self._writing.field.generation

    @property
    def usage(self) -> Mapping[str, Any] | None:
        """The tokens as the model counts them, as JSON. They become part of the last event.

        Setting them raises InvalidMessage if they are not JSON.
        """
        return self._usage

    @usage.setter
    def usage(self, usage: Mapping[str, Any] | None) -> None:
        end_line("done", "", None, usage)  # refuses what would keep the reply from being stored
        self._usage = usage

    async def write(self, said: Said) -> None:
        """Pass on a piece of text, or an event, to all who follow the turn. Text becomes part of the reply.

        Waits while more than 64 KiB are on their way to Redis.

        Args:
            said: Text, or a mapping with a `type`: `text` or `reasoning` with `delta`; `tool_call` with `id`, and
                `name`, `delta` or `done`; `tool_result` with `id` and `content`; `data` with `name` and `data`;
                `notice` with `code` and `text`.

        Raises:
            InvalidMessage: The event has another form, or is not JSON.
            TooLarge: The events of the turn exceed `max_turn_bytes`.
            TurnLost: The turn is lost, and the block goes on though it was cancelled.
            RuntimeError: The block has not begun, or has ended.
        """
        self._check_running()
        if self._task is None or self._task.done():
            # A generator goes on in another task than the one in which it began.
            self._keep_task()
            if self.stop_reason:
                self._cancel()
                await asyncio.sleep(0)  # the block ends here, not in the caller of the generator
        writing = self._writing
        writing.say(said)
        if writing.is_local:
            writing.tell_all()
            return
        self._live.writer.wake(writing)
        while writing.is_too_far_ahead:
            settled = writing.settled
            await settled.wait()
            self._check_running()

    async def append(self, *messages: Message | Shape, **changes: Unpack[StateChanges]) -> Receipt:
        """Store whole messages now, all or nothing, such as a tool call with its result.

        They replace the text since the last append, which then becomes part of no reply.

        Raises the errors of `Session.append`, and TurnLost.
        """
        self._check_running()
        check_options("append", changes, StateChanges)
        receipt, cancelled = await self._uncut(self._append_alone(messages, changes))
        if cancelled is not None:
            raise cancelled
        self._raise_unconfirmed()
        return receipt

    def finish(self, **changes: Unpack[StateChanges]) -> None:
        """Change the state together with the end of the turn, all or nothing.

        `waiting="city"` says that the agent now waits for a person: the answer begins the next turn. A turn that is not
        done, because it was stopped or its block raised, changes nothing.

        Raises:
            TypeError: A change is unknown.
        """
        check_options("finish", changes, StateChanges)
        self._host.calls.change(**changes)  # refuses what cannot be stored before the block ends
        self._changes = changes

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._is_exiting = True
        task = asyncio.current_task()
        if self._is_cancelled and self._task is not None:
            self._task.uncancel()
        outcome, reason = self._judge(kind)
        try:
            # The cancellation by a stop may still be to come: it ends here.
            _, cancelled = await self._uncut(self._end(outcome, reason))
        finally:
            if self._keeping is not None:
                self._keeping.cancel()
            self._writing.log.end()
            self._live.end(self._writing)
        is_own = task is self._task and (task is None or task.cancelling() <= self._cancelling_before)
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            return self._is_cancelled and is_own
        if cancelled is not None and not is_own:
            raise cancelled
        return False

    def _judge(self, kind: type[BaseException] | None) -> tuple[Outcome, str]:
        if self.stop_reason:
            return "stopped", self.stop_reason
        if kind is None:
            return "done", ""
        if issubclass(kind, asyncio.CancelledError | GeneratorExit):
            return "stopped", CLOSED if kind is GeneratorExit else CANCELLED
        return "failed", MODEL_FAILED if issubclass(kind, ModelFailed) else kind.__name__

    async def _end(self, outcome: Outcome, reason: str) -> None:
        async with self._appending:  # an append of another task comes first
            await self._end_alone(outcome, reason)

    async def _end_alone(self, outcome: Outcome, reason: str) -> None:
        text = join_text(self._writing.said)
        if self.is_lost:
            self.outcome, self.reason = "lost", "lost"
            raise refusals.lost(self._host.id)
        metadata = {**self.metadata, **({} if outcome == "done" else {"incomplete": reason})}
        calls = list(self.tool_calls) if outcome == "done" else []
        reply = [Message("assistant", text, metadata=metadata)] if text else []
        if calls:
            reply = [Message("assistant", text or None, tool_calls=calls, metadata=metadata)]
        end = TurnEnd(outcome, reason, self.usage, bool(reply))
        try:
            receipt = await self._append(reply, self._changes if outcome == "done" else {}, end)
        except (TurnLost, StoreUnavailable):
            self.outcome, self.reason = "lost", "lost"
            raise
        except RedismemError as refused:
            self.outcome, self.reason = "failed", f"not stored: {type(refused).__name__}"
            await self._append([], {}, TurnEnd("failed", self.reason, None, has_reply=False))
            raise
        self.outcome, self.reason = outcome, reason
        self.reply_seq = receipt.last_seq if reply else 0
        self._raise_unconfirmed()

    async def _append_alone(self, messages: Sequence[Message | Shape], changes: StateChanges) -> Receipt:
        async with self._appending:  # its number identifies an append
            return await self._append(messages, changes, None)

    async def _append(self, messages: Sequence[Message | Shape], changes: StateChanges, end: TurnEnd | None) -> Receipt:
        """Store messages of the turn, and end it with `end`, as soon as Redis has all that was said."""
        writing, number = self._writing, self._appends_count + 1
        if writing.is_local:
            receipt = await self._append_local(messages, changes, number)
            offset = log_bytes = len(writing.content)
            said_count = len(writing.said)
        else:
            said_count, receipt, offset, log_bytes = await self._append_in_turn(messages, changes, number, end)
        self._appends_count = number
        if messages:
            del writing.said[:said_count]
        lines = message_line(receipt.first_seq, receipt.last_seq) if messages else b""
        if end is not None:
            lines += end_line(end.outcome, end.reason, receipt.last_seq if end.has_reply else None, end.usage)
        writing.add_lines(lines, offset, log_bytes)
        self._live.writer.wake(writing)
        return receipt

    async def _append_in_turn(
        self, messages: Sequence[Message | Shape], changes: StateChanges, number: int, end: TurnEnd | None
    ) -> tuple[int, Receipt, int, int]:
        writing, store = self._writing, self._host.store
        clock = asyncio.get_running_loop().time
        until_s = clock() + 2 * store.settings.live_lease_s
        while True:
            await self._live.writer.flush(writing)
            if self.is_lost:
                raise refusals.lost(self._host.id)
            if not writing.unacknowledged_bytes:
                offset, said_count, calls = len(writing.content), len(writing.said), self._host.calls
                call = append_turn(calls, writing.field, messages, changes, offset=offset, number=number, end=end)
                writing.is_held = True
                try:
                    appended = await self._run(call)
                    return said_count, appended.receipt, offset, appended.log_bytes
                except StoreUnavailable:
                    if clock() >= until_s:
                        raise
                finally:
                    writing.is_held = False
            elif clock() >= until_s:
                text = "Redis did not take the events of the turn in two leases"
                raise StoreUnavailable(text, self._host.id, "TimeoutError", may_be_done=True)
            await asyncio.sleep(_PAUSE_S)

    async def _run(self, call: Call[Appended]) -> Appended:
        """Run an append. If too few replicas have it, keep the error for later: it is made."""
        made: list[Appended] = []

        def keep(*answers: Any) -> Appended:
            made[:] = [call.decode(*answers)]
            return made[0]

        try:
            return await self._host.store.run(replace(call, decode=keep), quarantine=True)
        except Unconfirmed as error:
            if not made:
                raise
            self._unconfirmed = error
            return made[0]

    async def _append_local(self, messages: Sequence[Message | Shape], changes: StateChanges, number: int) -> Receipt:
        """Append while Redis is down: the fallback takes the messages, and replays them later."""
        id = f"{self.generation}:{number}"
        if messages:
            return await self._host.append(*messages, id=id, confirm=0, **changes)
        if changes:
            await self._host.store.run(self._host.calls.update(id, **changes))
        return Receipt(0, 0, 0, created=False, duplicate=False, degraded=True)

    async def _uncut(self, work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
        """Run work to its end, even if the task is cancelled meanwhile. Return its result, and the cancellation."""
        task = asyncio.create_task(work)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
        return task.result(), cancelled

    async def _keep_active(self, kept_s: float) -> None:
        """Let the session live as long as the turn runs."""
        while True:
            await asyncio.sleep(min(_ACTIVE_S, kept_s / 4))
            with contextlib.suppress(RedismemError):  # the next one comes soon; a lost turn is noticed by its writes
                await self._host.touch()
                self._writing.needs_beat = True
                self._live.writer.wake(self._writing)

    def _raise_unconfirmed(self) -> None:
        error, self._unconfirmed = self._unconfirmed, None
        if error is not None:
            raise error

    def _check_running(self) -> None:
        if self._is_exiting:
            raise RuntimeError("the block of this turn has ended")
        if self._context is None:
            raise RuntimeError(_NOT_ENTERED)
        if self.is_lost:
            raise refusals.lost(self._host.id)

    def _stop(self, reason: str) -> None:
        if not (self._is_exiting or self.stop_reason):
            self.stop_reason = reason
            self._cancel()

    def _lose(self) -> None:
        self._live.writer.remove(self._writing)
        if not self.is_lost:
            self.is_lost = True
            if not self._is_exiting:
                self._cancel()

    def _keep_task(self) -> None:
        """Keep the task in which the block runs, which a stop cancels."""
        self._task = asyncio.current_task()
        self._cancelling_before = 0 if self._task is None else self._task.cancelling()

    def _cancel(self) -> None:
        if not self._is_cancelled and self._task is not None:
            self._is_cancelled = self._task.cancel()  # False if the task has ended

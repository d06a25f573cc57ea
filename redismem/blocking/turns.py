"""Turns for callers without an event loop. They run on a thread with a loop, over a memory of their own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from redismem.blocking.loop_thread import LoopThread
from redismem.concurrency.forks import reset_after_fork
from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import TurnStopped
from redismem.live import turn as turns
from redismem.live.turn import Outcome, Said
from redismem.memory.memory import Memory
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.protocol import turn_refusals as refusals
from redismem.protocol.session.state import StateChanges
from redismem.session.session import Session

T = TypeVar("T")
# A turn may ignore that it is stopped.
_ENDS_WITHIN_S = 10.0


class TurnThread:
    """A thread with an event loop and a memory, which the first turn starts. A forked process starts its own."""

    def __init__(self, make: Callable[[], Memory]) -> None:
        """`make` returns a new memory, and is called whenever the thread starts."""
        self._make = make
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Forget the memory of the parent after a fork."""
        self._thread = LoopThread("redismem-turns", self._open)
        self._memory: Memory | None = None

    def _open(self) -> Memory:
        self._memory = self._make()
        return self._memory

    def run(self, work: Callable[[Memory], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop of the thread and wait for its result."""
        self._thread.start()
        assert self._memory is not None
        return self._thread.run(partial(work, self._memory))

    def stop(self) -> None:
        """Stop the running turns, and end the thread."""
        self._thread.stop(_ENDS_WITHIN_S)


class SessionTurns:
    """The turns of one session."""

    __slots__ = ("_open", "_thread")

    def __init__(self, thread: TurnThread, open_session: Callable[[Memory], Session]) -> None:
        self._thread = thread
        self._open = open_session

    def run(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the session on the thread."""
        return self._thread.run(lambda memory: work(self._open(memory)))

    def turn(self, messages: tuple[Message | Shape, ...], options: dict[str, Any], project: str | None) -> Turn:
        """Return a turn, see `Session.turn`. `project` is the name of a project."""

        async def make(memory: Memory) -> turns.Turn:
            known: Any = None if project is None else memory.project(project)
            return self._open(memory).turn(*messages, project=known, **options)

        return Turn(self, self._thread.run(make))

    def follow(self, after: str | None, turn: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a turn, see `Session.follow`."""

        async def begin(session: Session) -> Any:
            return session.follow(after, turn)

        events = self.run(begin)
        try:
            while (each := self.run(lambda _: anext(events, None))) is not None:
                yield each
        finally:
            with suppress(RuntimeError):  # the memory is closed
                self.run(lambda _: events.aclose())


class Turn:
    """One turn of a session: `with session.turn(message, id=…) as turn`. `redismem.Turn` without `await`.

    A stop cannot cancel the block of a blocking caller: the next `write` or `append` raises TurnStopped, which ends the
    block, and the program goes on behind it. If the turn is lost, they raise TurnLost.
    """

    def __init__(self, session: SessionTurns, twin: turns.Turn) -> None:
        self._session = session
        self._twin = twin
        self._is_entered = False

    def __enter__(self) -> Self:
        self._session.run(lambda _: self._twin.__aenter__())
        self._is_entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_swallowed = self._session.run(lambda _: self._twin.__aexit__(kind, error, trace))
        return is_swallowed or (isinstance(error, TurnStopped) and self._twin.outcome == "stopped")

    @property
    def id(self) -> str:
        """The id that the caller gave the turn."""
        return self._twin.id

    @property
    def context(self) -> Context:
        """The context after the question, as `append_and_read` returns it. There is none before the block."""
        self._check_entered()
        return self._twin.context

    @property
    def generation(self) -> str:
        """The name of this turn in the ids of its events."""
        return self._twin.generation

    @property
    def outcome(self) -> Outcome:
        """done, stopped, failed or lost, once the block has ended; "" before."""
        return self._twin.outcome

    @property
    def reason(self) -> str:
        """The reason of an outcome other than done."""
        return self._twin.reason

    @property
    def reply_seq(self) -> int:
        """The seq of the reply, once the block has ended; 0 without a reply."""
        return self._twin.reply_seq

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Further metadata of the reply, beside `incomplete`."""
        return self._twin.metadata

    @metadata.setter
    def metadata(self, metadata: Mapping[str, Any]) -> None:
        self._twin.metadata = metadata

    @property
    def tool_calls(self) -> Sequence[Mapping[str, Any]]:
        """Calls of the reply, in OpenAI's format, of tools that the client runs. A turn that is not done has none."""
        return self._twin.tool_calls

    @tool_calls.setter
    def tool_calls(self, tool_calls: Sequence[Mapping[str, Any]]) -> None:
        self._twin.tool_calls = tool_calls

    @property
    def usage(self) -> Any:
        """The tokens as the model counts them, as JSON. They become part of the last event."""
        return self._twin.usage

    @usage.setter
    def usage(self, usage: Any) -> None:
        self._twin.usage = usage

    def write(self, said: Said) -> None:
        """Pass on text or an event, see `redismem.Turn.write`.

        Raises:
            TurnStopped: The turn was stopped. It ends the block, and is not raised behind it.
            TurnLost: Another process has ended the turn, or the session is gone.

        Also raises the errors of the async method.
        """
        self._run(lambda _: self._twin.write(said))

    def append(self, *messages: Message | Shape, **changes: Unpack[StateChanges]) -> Receipt:
        """Store whole messages now, see `redismem.Turn.append`. Also raises TurnStopped and TurnLost."""
        return self._run(lambda _: self._twin.append(*messages, **changes))

    def finish(self, **changes: Unpack[StateChanges]) -> None:
        """Change the state together with the end of the turn, see `redismem.Turn.finish`."""
        self._twin.finish(**changes)

    def _run(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        self._check()
        try:
            return self._session.run(work)
        except RuntimeError:
            self._check()  # a stop cancels what runs
            raise

    def _check_entered(self) -> None:
        if not self._is_entered:
            raise RuntimeError("enter the turn first: with session.turn(…) as turn")

    def _check(self) -> None:
        self._check_entered()
        if self._twin.is_lost:
            raise refusals.lost(self._twin.session_id)
        if self._twin.stop_reason:
            raise refusals.stopped(self._twin.session_id, self._twin.stop_reason)

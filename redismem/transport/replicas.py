"""Calls that count only when replicas have them: a connection of their own, on which a WAIT follows what was written.

WAIT answers for what its own connection has written, and keeps that connection from all else until it is answered. So
such calls do not travel with the others, and those that come together go out together, with one WAIT behind them; the
next ones wait for that. What is sent again on another connection has its WAIT behind it there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp

_BATCH_COUNT = 512


class Wanted(NamedTuple):
    """How many replicas are to have it, and how long that may take."""

    replicas: int
    wait_s: float


class Line(Protocol):
    """What sends the bytes of a batch: a lane that nobody else uses."""

    def send(self, content: bytes, reply_count: int, timeout_s: float) -> Awaitable[list[Any]]:
        """The replies as they are. Raises ServerError, ConnectionLost."""

    def reconnect(self) -> None:
        """Gives the connection up: what was the primary is a replica now."""

    async def aclose(self) -> None:
        """Gives up what is on its way. Nothing can be sent afterwards."""

    def drop(self) -> None:
        """Closes what is open, if nobody is left who could."""


def waiting(wanted: Wanted) -> bytes:
    """The WAIT behind what is to be confirmed. One reply."""
    return resp.independent([("WAIT", wanted.replicas, max(1, int(wanted.wait_s * 1000)))])


class Content(NamedTuple):
    """A call as bytes, and its replies."""

    content: bytes
    reply_count: int
    read: Callable[[list[Any]], resp.Outcome]

    @classmethod
    def of(cls, commands: Sequence[Command], asking: bool = False) -> Content:
        """One command as it is, several as a transaction. `asking`: for a node that is about to have the slot."""
        if len(commands) == 1:
            given = cls(resp.independent(commands), 1, resp.answers)
        else:
            given = cls(resp.transaction(commands), len(commands) + 2, resp.transaction_answers)
        if not asking:
            return given
        content, read = resp.independent([("ASKING",)]) + given.content, given.read
        return cls(content, given.reply_count + 1, lambda replies: read(replies[1:]))


def confirmed(outcome: resp.Outcome, replicas: Any) -> resp.Outcome:
    """The outcome with the answer of WAIT behind it."""
    return [*outcome, replicas] if isinstance(outcome, list) else outcome


class _Call:
    """One call, from its caller to the replies. `script` is None once it was loaded for this call."""

    __slots__ = ("content", "deadline", "future", "script", "wanted")

    def __init__(
        self,
        content: Content,
        future: asyncio.Future[list[Any]],
        deadline: float,
        script: Script | None,
        wanted: Wanted,
    ) -> None:
        self.content, self.future, self.deadline = content, future, deadline
        self.script, self.wanted = script, wanted

    def end(self, outcome: resp.Outcome) -> None:
        if self.future.done():
            return
        if isinstance(outcome, list):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)
            self.future.exception()  # seen: nobody may be left to collect it


class Confirming:
    """Sends batches over a line, one at a time. Belongs to the event loop it is used on."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._calls: deque[_Call] = deque()
        self._batch: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

    def run(
        self,
        commands: Sequence[Command],
        timeout_s: float,
        script: Script | None,
        wanted: Wanted,
        asking: bool = False,
    ) -> asyncio.Future[list[Any]]:
        """The same as `Confirms.run_confirmed`, in a batch with other calls."""
        loop = asyncio.get_running_loop()
        # A batch may be on its way that takes as long as this one may.
        deadline = loop.time() + timeout_s + 2 * wanted.wait_s
        call = _Call(Content.of(commands, asking), loop.create_future(), deadline, script, wanted)
        self._calls.append(call)
        if self._sender is None or self._sender.done():
            self._sender = loop.create_task(self._send())
        return call.future

    @property
    def calls_count(self) -> int:
        """Calls that have no answer yet: on their way, or in line."""
        return len(self._calls) + sum(not call.future.done() for call in self._batch)

    def close(self) -> None:
        """Gives up what is in line; what is on its way ends with its connection."""
        while self._calls:
            self._calls.popleft().end(ConnectionLost("closed", sent=False))

    async def _send(self) -> None:
        while self._calls:
            first = [self._calls.popleft() for _ in range(min(len(self._calls), _BATCH_COUNT))]
            self._batch = batch = [call for call in first if self._is_in_time(call)]
            if batch:
                try:
                    await self._send_batch(batch)
                except (ServerError, ConnectionLost) as failure:
                    for call in batch:
                        call.end(failure)
                except BaseException as failure:
                    for call in batch:
                        call.end(ConnectionLost(type(failure).__name__))
                    raise
        self._batch = []  # their bytes are of no more use

    def _is_in_time(self, call: _Call) -> bool:
        if call.future.done():
            return False
        if asyncio.get_running_loop().time() < call.deadline:
            return True
        call.end(ConnectionLost("TimeoutError", sent=False))
        return False

    async def _send_batch(self, batch: list[_Call]) -> None:
        wanted = max(call.wanted for call in batch)
        left_s = max(call.deadline for call in batch) - asyncio.get_running_loop().time()
        parts = [call.content for call in batch]
        content = b"".join((*(part.content for part in parts), waiting(wanted)))
        replies = await self.line.send(content, sum(part.reply_count for part in parts) + 1, left_s)
        at, again = 0, []
        for call in batch:
            outcome = call.content.read(replies[at : at + call.content.reply_count])
            at += call.content.reply_count
            refusal = resp.refusal(outcome)
            if refusal is not None and refusal.word == "NOSCRIPT" and call.script is not None:
                again.append(call)
                continue
            if refusal is not None and refusal.word == "READONLY":
                self.line.reconnect()
            call.end(confirmed(outcome, replies[-1]))
        if again:
            await self._load(again)

    async def _load(self, again: list[_Call]) -> None:
        """Makes the node know the scripts; then the calls go out in the next batch: once, as others may flush them."""
        left_s = max(call.deadline for call in again) - asyncio.get_running_loop().time()
        try:
            for script in {call.script for call in again if call.script is not None}:
                (refused,) = await self.line.send(resp.loading(script), 1, left_s)
                if isinstance(refused, ServerError):
                    raise resp.unloadable(refused)
        except (ServerError, ConnectionLost) as failure:
            for call in again:
                call.end(failure)
            return
        for call in again:
            call.script = None
        self._calls.extendleft(reversed(again))

"""Send appends that replicas must confirm, over a separate connection with a WAIT after each batch of writes.

WAIT covers only writes on its own connection, and blocks that connection until it is answered. So these calls have
their own connection, and are sent in batches with one WAIT each. A batch waits for the previous batch. A retry on
another connection has a WAIT of its own.
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
    """The number of replicas that must have a write, and the longest time to wait for the replicas."""

    replicas: int
    wait_s: float


class Line(Protocol):
    """The interface that sends the bytes of a batch: a lane that sends nothing else."""

    def send(self, content: bytes, reply_count: int, timeout_s: float) -> Awaitable[list[Any]]:
        """Send the bytes, and return the raw replies.

        Raises:
            ServerError: The connection was refused.
            ConnectionLost: No reply came.
        """

    def reconnect(self) -> None:
        """Close the connection, because the former primary is a replica now."""

    async def aclose(self) -> None:
        """End all pending calls. Nothing can be sent afterwards."""

    def drop(self) -> None:
        """Close open connections, because the lane was dropped without `aclose`."""


def encode_wait(wanted: Wanted) -> bytes:
    """Encode the WAIT after a batch. It has one reply."""
    return resp.encode_independent([("WAIT", wanted.replicas, max(1, int(wanted.wait_s * 1000)))])


class Content(NamedTuple):
    """A call as bytes, with the number of its replies and their decoder."""

    content: bytes
    reply_count: int
    read: Callable[[list[Any]], resp.Outcome]

    @classmethod
    def of(cls, commands: Sequence[Command], asking: bool = False) -> Content:
        """Encode one command alone, or several as a transaction. `asking` is for a node that is importing the slot."""
        if len(commands) == 1:
            encoded = cls(resp.encode_independent(commands), 1, resp.check_replies)
        else:
            encoded = cls(resp.encode_transaction(commands), len(commands) + 2, resp.unpack_transaction)
        if not asking:
            return encoded
        content, read = resp.encode_independent([("ASKING",)]) + encoded.content, encoded.read
        return cls(content, encoded.reply_count + 1, lambda replies: read(replies[1:]))


def add_replicas(outcome: resp.Outcome, replicas: Any) -> resp.Outcome:
    """Append the reply of WAIT to the replies."""
    return [*outcome, replicas] if isinstance(outcome, list) else outcome


class _Call(resp.Pending):
    """A call that is queued or sent. `script` becomes `None` once the script was loaded for this call."""

    __slots__ = ("content", "deadline", "script", "wanted")

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

    def add_source(self, script: Script) -> None:
        """Send the source of this script instead of its hash, if the call runs it."""
        if self.script is script:
            self.content = self.content._replace(content=resp.encode_source(self.content.content, script))


class Confirming:
    """Sends batches over a line, one at a time. Bound to the event loop that uses it."""

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
        """Run commands as `Transport.run_confirmed` does, in a batch with other calls."""
        loop = asyncio.get_running_loop()
        # The current batch may take as long as this one.
        deadline = loop.time() + timeout_s + 2 * wanted.wait_s
        call = _Call(Content.of(commands, asking), loop.create_future(), deadline, script, wanted)
        self._calls.append(call)
        if self._sender is None or self._sender.done():
            self._sender = loop.create_task(self._send())
        return call.future

    @property
    def calls_count(self) -> int:
        """The number of calls without a reply so far: sent or queued."""
        return len(self._calls) + sum(not call.future.done() for call in self._batch)

    def close(self) -> None:
        """End all queued calls. Calls under way end with their connection."""
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
        self._batch = []  # frees their bytes

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
        content = b"".join((*(part.content for part in parts), encode_wait(wanted)))
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
            call.end(add_replicas(outcome, replies[-1]))
        if again:
            await self._load(again)

    async def _load(self, again: list[_Call]) -> None:
        """Load the scripts, and put the calls at the head of the next batch, with their sources if loading is refused.

        Only once per call, because another client may keep flushing scripts.
        """
        left_s = max(call.deadline for call in again) - asyncio.get_running_loop().time()
        try:
            for script in {call.script for call in again if call.script is not None}:
                (refused,) = await self.line.send(resp.encode_load(script), 1, left_s)
                if not isinstance(refused, ServerError):
                    continue
                if not resp.is_command_refused(refused):
                    raise refused
                (denied,) = await self.line.send(resp.encode_independent([resp.EVAL_PROBE]), 1, left_s)
                if resp.is_command_refused(denied):
                    raise resp.may_not_load()
                for call in again:
                    call.add_source(script)
        except (ServerError, ConnectionLost) as failure:
            for call in again:
                call.end(failure)
            return
        for call in again:
            call.script = None
        self._calls.extendleft(reversed(again))

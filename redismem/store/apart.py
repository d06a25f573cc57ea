"""Send the commands of a call one by one, if Redis refuses or cannot answer them together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic
from typing import Any

from redismem.errors import StoreUnavailable
from redismem.protocol.call import Call, Command
from redismem.protocol.server_errors import ConnectionLost, ServerError

Transmit = Callable[[Call[Any], float], Awaitable[list[Any]]]
_SMALL_BYTES = 8 * 1024 * 1024
"""The size of a window that one reply can hold: half of the soft limit that docs/operations.md recommends."""
_FIRST_RANGES = 8
_NOTHING = (1, 0)
_SESSIONS_LIMIT = 1_000
# The server was slow, or this process was: a shorter reply would come no sooner.
_LATE = frozenset(["TimeoutError", "StalledConnection"])


class ReadsApart:
    """Reads of several commands that are sent one by one, and the sessions whose window is read in ranges.

    A Redis whose memory is full refuses every transaction. A Redis closes a connection on a reply over its output
    buffer limit, and so all calls of the process fail with that read. So the read is not sent again as it was.
    https://redis.io/docs/latest/operate/oss_and_stack/management/config/ (client-output-buffer-limit)
    """

    def __init__(self, transmit: Transmit, deadline_s: float) -> None:
        """`transmit` sends a call once, and returns its replies."""
        self._transmit, self._deadline_s = transmit, deadline_s
        self.ranges: dict[str, int] = {}
        """The number of ranges in which the window of a session is read."""

    def __contains__(self, call: Call[Any]) -> bool:
        """True if the commands of the call are sent one by one."""
        # A read of one command is a part of such a read.
        is_divided = call.session_id in self.ranges and len(call.commands) > 1
        return call.is_apart or (is_divided and any(map(_reads_window, call.commands)))

    def divide(self, call: Call[Any], failure: ServerError | ConnectionLost) -> Call[Any]:
        """Return the call for the attempt after this failure."""
        if isinstance(failure, ServerError):
            return replace(call, is_apart=True) if must_divide(call, failure) else call
        if call.session_id and _may_be_too_large(failure) and any(map(_reads_window, call.commands)):
            self._divide_window(call.session_id)
        return call

    def _divide_window(self, session_id: str) -> None:
        self.ranges[session_id] = 2 * self.ranges.pop(session_id, _FIRST_RANGES // 2)
        if len(self.ranges) > _SESSIONS_LIMIT:
            self.ranges.pop(next(iter(self.ranges)), None)

    async def send(self, call: Call[Any], timeout_s: float) -> list[Any]:
        """Send the commands one by one, and return their replies, which are of one moment.

        The first command of the reads is sent again behind them. If its reply has changed, all reads are repeated.

        Raises:
            ServerError: Redis replied with an error.
            ConnectionLost: Redis did not reply.
            StoreUnavailable: The session has changed during each read, until the deadline.
        """
        until = monotonic() + self._deadline_s
        # A write is sent once. All other scripts may run again.
        begin = int(call.has_sending)
        write = replace(call, commands=call.commands[:begin], is_apart=False, sends=None)
        answers = await self._transmit(write, timeout_s) if begin else []
        if begin and type(answers[0]) is bytes:
            # Without the reads in its transaction, a new append is not told its seqs. A known one is.
            answers = await self._transmit(write.again(), timeout_s)
        first = next(command for command in call.commands[begin:] if command[0] != "EVALSHA")

        async def once(command: Command) -> Any:
            script = call.script if command[0] == "EVALSHA" else None
            read = Call(call.session_id, (command,), lambda answer: answer, script, op=call.op)
            return read.finish(await self._transmit(read, max(0.001, min(timeout_s, until - monotonic()))))

        async def run(command: Command) -> Any:
            """Send a read, and once more if its connection was closed: else many reads would never all arrive."""
            try:
                return await once(command)
            except ConnectionLost as lost:
                if not _may_be_too_large(lost):
                    raise
            name, key, *ends = command
            if name != "LRANGE" or ends[0] == ends[1] or int(ends[1]) < 0 or call.session_id is None:
                return await once(command)
            self._divide_window(call.session_id)
            middle = (int(ends[0]) + int(ends[1])) // 2
            return [*await run((name, key, ends[0], middle)), *await run((name, key, middle + 1, ends[1]))]

        while True:
            read = [await self._read(command, call.session_id, run) for command in call.commands[begin:]]
            if await run(first) == read[call.commands.index(first) - begin]:
                return [*answers[:begin], *read, *answers[begin:]]
            if monotonic() > until:
                raise StoreUnavailable("the session has changed during each read of it", call.session_id)

    async def _read(self, command: Command, session_id: str | None, run: Callable[[Command], Awaitable[Any]]) -> Any:
        """Return the reply to a command. A large part of a window is read in ranges."""
        if session_id is None or session_id not in self.ranges or not _reads_window(command):
            return await run(command)
        name, key, *ends = command
        count = await run(("LLEN", key))
        first, last = (int(end) + count if int(end) < 0 else int(end) for end in ends)
        first, stop = max(0, first), min(last + 1, count)
        step = max(1, -(-(stop - first) // self.ranges.get(session_id, 1)))
        parts = [(at, min(at + step, stop) - 1) for at in range(first, stop, step)]
        elements = [each for part in parts for each in await run((name, key, *part))]
        if count * sum(map(len, elements)) <= _SMALL_BYTES * len(elements):
            self.ranges.pop(session_id, None)  # the window has become short, or another call was the reason
        return elements


def must_divide(call: Call[Any], failure: ServerError | ConnectionLost) -> bool:
    """True if Redis has refused the call because it is a transaction, and its commands may be sent one by one."""
    is_full = isinstance(failure, ServerError) and failure.word == "OOM"
    return is_full and call.is_separable and not call.is_apart and len(call.commands) > 1


def _may_be_too_large(failure: ConnectionLost) -> bool:
    """True if the server may have closed the connection because of the size of the reply."""
    return failure.sent and failure.reason not in _LATE


def _reads_window(command: Command) -> bool:
    """True if the command reads a window, or a part of it that is not empty by its positions."""
    return command[0] == "LRANGE" and command[2:] != _NOTHING

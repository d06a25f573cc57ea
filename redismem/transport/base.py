"""The interface of a transport."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, runtime_checkable

from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.replicas import Wanted
from redismem.transport.url import Address

_AT_ONCE = struct.pack("ii", 1, 0)
"""Value for SO_LINGER, see socket(7): on, with a linger time of 0 s."""


_IDLE_S, _PROBE_EVERY_S, _PROBES_COUNT = 60, 20, 3
# macOS calls the first one TCP_KEEPALIVE; a system may lack any of them, and then its own defaults apply.
_KEEPALIVE = {
    option: value
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPALIVE", _IDLE_S),
        ("TCP_KEEPINTVL", _PROBE_EVERY_S),
        ("TCP_KEEPCNT", _PROBES_COUNT),
    )
    if (option := getattr(socket, name, None)) is not None
}
"""TCP options of an idle connection: probe it after a minute, and close it after three unanswered probes.

By default, Linux begins after two hours. By then a load balancer has long forgotten the connection, without a word.
"""


class Transport(Protocol):
    """Sends commands and returns the replies.

    An error reply is a ServerError in the list of replies. If there are no replies at all, the call raises ServerError
    or ConnectionLost. The reply to a cancelled call never goes to another call. Transports for blocking callers have
    the same methods, which block the thread and never suspend.
    """

    @property
    def repeats(self) -> bool:
        """True if the transport may send a command more than once by itself."""

    @property
    def blocks(self) -> bool:
        """True if calls block the thread and never suspend."""

    @property
    def place(self) -> str:
        """Host and port of the server, or the path of its socket; "" if unknown."""

    @property
    def nodes(self) -> MultiNode | None:
        """The nodes, if there are several and each may fail alone; `None` for a single server."""

    @property
    def calls_count(self) -> int:
        """The number of calls without a reply so far; 0 if the transport does not count them."""

    def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> Awaitable[list[Any]]:
        """Send commands about one slot in one write, as one MULTI/EXEC if there are several. Return one reply per
        command.

        `script` is the script that the first command runs: if the node does not know it, the transport loads it and
        repeats the commands. If the node is a replica, the transport reconnects, because the address may soon lead to
        the new primary.

        `subject` is what the commands are about, by default the hash tag of their keys. Where calls share connections,
        those of one subject and one event loop run in the order in which they were made, however large they are.
        """

    def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> Awaitable[list[Any]]:
        """Send the commands as `run` does, and append to the replies the number of replicas that have the write.

        Raises:
            InvalidSettings: The transport knows no replicas.
        """

    def run_independent(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Send each command to the node of its first key, in one write per node; one reply per command."""

    async def sleep(self, seconds: float) -> None:
        """Wait in the way of this transport: suspended or blocked."""

    async def aclose(self) -> None:
        """Close the connections that the transport opened itself."""

    def drop(self) -> None:
        """Close open connections with a warning, because the transport was dropped without `aclose`."""


class MultiNode(Protocol):
    """A transport to several nodes."""

    @property
    def places(self) -> tuple[str, ...]:
        """The host and port of each known primary."""

    def node_of(self, commands: Sequence[Command]) -> str:
        """Return the place of the node that the commands go to; "" if the node is unknown or may be any."""

    def run_at(self, place: str, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Send commands to the node at this place.

        Raises:
            ServerError: The node replied with an error to all commands.
            ConnectionLost: The node did not reply.
        """


@runtime_checkable
class ChannelNodes(Protocol):
    """A transport for asyncio to addresses, so that subscriptions can have connections of their own."""

    async def channel_addresses(self, channels: Sequence[bytes], timeout_s: float) -> Sequence[Address | None]:
        """Return the address of the node of each channel; `None` if no node has the channel's slot.

        Raises:
            ServerError: The servers that were asked refused to name the node.
            ConnectionLost: No server replied.
        """

    def note_channel_trouble(self, trouble: ServerError | ConnectionLost, place: str) -> None:
        """Note that the node at this place refused a channel, or lost the connection of its channels.

        A bare MOVED means that the node gave the channel's slot away without naming the new owner.
        """


def reason_of(failure: BaseException) -> str:
    """Return the reason of a lost connection: the system's word, such as EMFILE, or else the class of the failure."""
    if type(failure) is OSError and failure.errno is not None:
        return errno.errorcode.get(failure.errno, "OSError")
    return type(failure).__name__


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel probe the connection whenever it has been idle for a minute."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def discard_unsent(connection: socket.socket) -> None:
    """Make the socket discard, when it is closed, all bytes that the server has not acknowledged.

    Otherwise the kernel would resend the bytes for minutes. Once reachable again, the server would run calls that were
    given up long ago and repeated on another connection, and whose ids it may no longer remember.
    """
    if connection.family != socket.AF_UNIX:  # a unix socket has no unacknowledged bytes
        with contextlib.suppress(OSError):  # already closed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


class _Closed:
    """The transport of a closed memory: every call raises."""

    repeats = False
    blocks = True
    place = ""
    nodes = None
    calls_count = 0

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("this memory is closed")

    run = run_confirmed = run_independent = sleep = _refuse

    async def aclose(self) -> None:
        """Do nothing: a second close is allowed."""

    def drop(self) -> None:
        """Do nothing: no connection is open."""


CLOSED: Transport = _Closed()
BEHIND_SENTINELS = "behind the sentinels at "
"""Prefix of the place of a primary whose address the sentinels have not returned yet."""


def is_embedded(transport: Transport) -> bool:
    """True if the transport leads to the embedded store."""
    return bool(getattr(transport, "is_embedded", False))


def place_of(transport: Transport, commands: Sequence[Command] = ()) -> str:
    """Return the place of the node that the commands go to, or of the only server; "" if it is not known."""
    node = transport.nodes.node_of(commands) if transport.nodes is not None and commands else ""
    return node or transport.place

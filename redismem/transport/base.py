"""What a transport is."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.transport.replicas import Wanted

_AT_ONCE = struct.pack("ii", 1, 0)
"""The value of SO_LINGER, socket(7), that says: on, for 0 s."""


class Transport(Protocol):
    """Sends commands and brings back the replies.

    An error reply is a ServerError in its place; a ServerError or ConnectionLost is raised if no reply came at all.
    Cancelling a call never gives its reply to another call. A transport for blocking callers has the same methods: they
    block the thread and never suspend.
    """

    @property
    def repeats(self) -> bool:
        """True if the transport may send a command more than once by itself."""

    @property
    def blocks(self) -> bool:
        """True if calls block the thread and never suspend."""

    @property
    def place(self) -> str:
        """Host and port of the server, or the path of its socket; "" if they are not known."""

    @property
    def nodes(self) -> MultiNode | None:
        """The same transport as one to several nodes, each of which may fail alone; None for a single server."""

    @property
    def calls_count(self) -> int:
        """The number of calls without a reply so far; 0 if the transport does not count them."""

    def run(self, commands: Sequence[Command], timeout_s: float, script: Script | None = None) -> Awaitable[list[Any]]:
        """Send commands about one slot in one write, as one MULTI/EXEC if there are several; one reply per command.

        `script` is the one that the first command runs: the transport loads it into a node that does not know it, and
        sends the commands once more. It reconnects to a node that turns out to be a replica, as its address may lead
        to the new primary by then.
        """

    def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> Awaitable[list[Any]]:
        """Send them as `run` does; behind the replies comes how many replicas have the write.

        Raises InvalidSettings if the transport knows no replicas.
        """

    def run_independent(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Send each command to the node of its first key, in one write per node; one reply per command."""

    async def sleep(self, seconds: float) -> None:
        """Wait, as this transport waits: suspended or blocked."""

    async def aclose(self) -> None:
        """Close the connections that the transport opened itself."""

    def drop(self) -> None:
        """Close open connections when nobody is left to await `aclose`, and warn of them."""


class MultiNode(Protocol):
    """A transport to several nodes."""

    @property
    def places(self) -> tuple[str, ...]:
        """Host and port of each primary that is known."""

    def node_of(self, commands: Sequence[Command]) -> str:
        """Return the place of the node that these commands go to; "" if it is not known or may be any."""

    def run_at(self, place: str, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Send commands to the node at this place. Raises ServerError, ConnectionLost."""


def discard_unsent(connection: socket.socket) -> None:
    """Has the system send nothing more of what the server has not received yet, once this is closed.

    Else it would go on trying for minutes: a server that can be reached again would carry out calls that were given up
    long ago, made elsewhere meanwhile, and are perhaps not known by their ids any more.
    """
    if connection.family != socket.AF_UNIX:  # there, what was sent has arrived
        with contextlib.suppress(OSError):  # it has ended already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


class _Closed:
    """The transport of a closed memory: every call raises."""

    repeats = False
    blocks = False
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
"""How the place of a primary begins that they have not named yet."""


def place_of(transport: Transport, commands: Sequence[Command] = ()) -> str:
    """Return the place of the node that commands go to, or of the server; "" if it is not known."""
    node = transport.nodes.node_of(commands) if transport.nodes is not None and commands else ""
    return node or transport.place

"""What a transport is."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from redismem.protocol.call import Command
from redismem.protocol.scripts import Script

_AT_ONCE = struct.pack("ii", 1, 0)
"""The value of SO_LINGER, socket(7), that says: on, for 0 s."""


class Transport(Protocol):
    """Sends commands and brings back the replies.

    An error reply is a ServerError in its place; a ServerError or ConnectionLost is raised if no reply came at all.
    Cancelling a call never gives its reply to another. A transport for blocking callers has the same methods; they
    block and never suspend.
    """

    @property
    def repeats(self) -> bool:
        """Whether the transport may send a command more than once by itself."""

    @property
    def blocks(self) -> bool:
        """True if calls block the thread and never suspend."""

    def run(self, commands: Sequence[Command], timeout_s: float, script: Script | None = None) -> Awaitable[list[Any]]:
        """One reply a command, of commands about one slot: one write, and one MULTI/EXEC if there are several.

        `script` is the one that the first command runs. A node that does not know it is given it, and the commands
        are sent to that node once more. A node that turns out to be a replica is connected to anew: the address may
        lead to its successor by then.
        """

    def run_independent(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """One reply a command; each goes to the node of its first key, in as few writes as there are nodes."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def aclose(self) -> None:
        """Closes the connections that are the transport's own."""


def discard_unsent(connection: socket.socket) -> None:
    """Has the system send nothing more of what the server has not received yet, once this is closed.

    Else it would go on trying for minutes: a server that can be reached again would carry out calls that were given up
    long ago, made elsewhere meanwhile, and are perhaps not known by their ids any more.
    """
    if connection.family != socket.AF_UNIX:  # there, what was sent has arrived
        with contextlib.suppress(OSError):  # it has ended already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


class _Closed:
    """What a closed memory has instead of a transport."""

    repeats = False
    blocks = False

    def run(self, *_: Any, **__: Any) -> Awaitable[list[Any]]:
        raise RuntimeError("this memory is closed")

    def run_independent(self, *_: Any, **__: Any) -> Awaitable[list[Any]]:
        raise RuntimeError("this memory is closed")

    async def sleep(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("this memory is closed")

    async def aclose(self) -> None:
        """Closed twice is closed."""


CLOSED: Transport = _Closed()


BEHIND_SENTINELS = "behind the sentinels at "
"""How the place of a primary begins that they have not named yet."""


def place_of(transport: Transport, commands: Sequence[Command] = ()) -> str:
    """Host and port of the node that commands go to, or the path of its socket; "" if that is not known."""
    node_of = getattr(transport, "node_of", None)
    place: str = (node_of(commands) if node_of and commands else "") or getattr(transport, "place", "")
    return place

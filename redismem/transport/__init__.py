"""How a call travels. A transport sends commands and brings back the replies, once; trying again is the memory's.

`run` sends commands about one slot, as one MULTI/EXEC where there are several, in one write. `run_each` sends
independent commands, each to where its first key lives, in as few writes as there are nodes. Both give one reply a
command; an error reply is a ServerError in its place, and a ServerError or ConnectionLost is raised where no reply came
at all. `load` makes a script known. `reconnect` gives up the connections there are: the address may lead to another
server by now. Cancelling a call never gives its reply to another. `repeats`: the transport may send a command more than
once by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from redismem.calls import Command
from redismem.settings import Settings


class Transport(Protocol):
    """What carries calls. One for blocking callers has the same methods; they block and never suspend."""

    @property
    def repeats(self) -> bool: ...

    def run(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]: ...

    def run_each(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]: ...

    async def load(self, source: bytes, timeout_s: float) -> None: ...

    async def reconnect(self) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    async def aclose(self) -> None: ...


def connect(url: str | None, client: Any, settings: Settings) -> Transport:
    """Over the caller's client, else to the URL, else to a new embedded store. Raises InvalidSettings."""
    from redismem.transport import embedded, lane, redis_py

    if client is not None:
        return redis_py.RedisPy(client, owned=False)
    if url is not None:
        return lane.Lane.from_url(url, attempt_s=min(settings.attempt_s, settings.deadline_s))
    return embedded.embedded()


def connect_blocking(url: str | None, client: Any, settings: Settings) -> Transport:
    """The same for blocking callers."""
    from redismem.transport import blocking_lane, embedded, redis_py

    if client is not None:
        return redis_py.BlockingRedisPy(client, owned=False)
    if url is not None:
        return blocking_lane.BlockingLane.from_url(url, max_connections=settings.max_connections)
    return embedded.blocking_embedded()

"""The interface of the fallback, as the store uses it. The fallback itself is built on the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from redismem.context.info import Health
from redismem.protocol.call import Call

T = TypeVar("T")


class Layer(Protocol):
    """The interface of the fallback, which serves calls while Redis is down."""

    @property
    def is_away(self) -> bool:
        """True if Redis is known to be down."""

    async def run(self, call: Call[T], *, quarantine: bool = False, begun_s: float | None = None) -> T:
        """Run a call as `Store.send` does; while Redis is down, serve it from this process."""

    def health(self, of_redis: Health) -> Health:
        """Return this health with the numbers of the backlog filled in."""

    def start_probing(self) -> None:
        """Start to probe Redis, because a breaker has opened."""

    def begin_without_redis(self) -> None:
        """Log that this process begins while Redis is down."""

    def forget(self, is_wanted: Callable[[str, bytes | None], bool]) -> list[str]:
        """Drop the cached contexts of the wanted sessions, and return those with a backlog.

        `is_wanted` gets the id of a session, and the field `owner` of its state as far as this process knows it.
        """

    async def aclose(self) -> None:
        """Replay the backlog, within the deadline, and log what is lost."""


class LivePart(Protocol):
    """The interface of a part for the turns of one event loop, as the store uses it. The part is built on the store."""

    async def aclose(self) -> None:
        """Stop the running turns, and wait for them to end, within the deadline."""

"""A copy of the log of one turn in this process, and the readers that wait for more of it."""

from __future__ import annotations

import asyncio

from redismem.live.events import END

_LINE_FEED = 10


class Log:
    """The events of one turn, as far as this process knows them, as lines.

    A writer's log is what Redis has acknowledged. A follower's log is what it has received.
    """

    __slots__ = ("_changed", "content", "generation", "has_ended", "is_replaced")

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.content = bytearray()
        self.has_ended = False
        """True once the last event is in it, or no more will come."""
        self.is_replaced = False
        """True if Redis has other events of the turn than these, or another turn."""
        self._changed = asyncio.Event()

    def extend(self, content: bytes | bytearray | memoryview) -> None:
        """Add content and wake the readers."""
        if content:
            self.content += content
            self.wake()

    def end(self, *, is_replaced: bool = False) -> None:
        """Tell the readers that no more will come."""
        self.has_ended = True
        self.is_replaced = self.is_replaced or is_replaced
        self.wake()

    def ends_event(self, offset: int) -> bool:
        """True if an event ends at this offset, or the first one begins there."""
        return ends_event(self.content, offset)

    def ends_turn(self, offset: int) -> bool:
        """True if the event that ends at this offset is the last one of its turn."""
        return self.content.startswith(END, self.content.rfind(b"\n", 0, max(0, offset - 1)) + 1)

    def wake(self) -> None:
        """Wake the readers."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def changed(self) -> asyncio.Event:
        """Return the event that is set at the next change. Take it before you look."""
        return self._changed


def ends_event(content: bytearray, offset: int) -> bool:
    """True if an event ends at this offset of a log, or the first one begins there."""
    return not offset or (offset <= len(content) and content[offset - 1] == _LINE_FEED)


def parse_event_id(event_id: str) -> tuple[str, int] | None:
    """Return the name before the offset of an event id, such as a generation, and the offset; None if it is no id."""
    name, _, offset = event_id.rpartition(".")
    if not name or not offset.isascii() or not offset.isdigit() or len(offset) > 10:
        return None
    return name, int(offset)

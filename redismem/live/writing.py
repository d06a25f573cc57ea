"""The events of a running turn of this process, and how much of them Redis has. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redismem.errors import TooLarge
from redismem.live.events import check_event, encode_event
from redismem.live.log import Log, ends_event
from redismem.protocol.keys import SessionKeys
from redismem.protocol.live.calls import TurnWrite, WriteReply
from redismem.protocol.live.turns import TurnField
from redismem.settings.names import over_limit

_UNACKNOWLEDGED_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024


class Writing:
    """The writer's side of a running turn.

    `content` has all lines so far, `acknowledged` counts the bytes of it that Redis has. Listeners of this process read
    `log`, which has what Redis has: so another process can tell them the rest if this one dies. While Redis is away,
    `log` has everything.
    """

    def __init__(
        self,
        keys: SessionKeys,
        field: TurnField,
        first_line: bytes,
        limit_bytes: int,
        on_stop: Callable[[str], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.keys, self.field = keys, field
        self.content = bytearray(first_line)
        self.acknowledged = len(first_line)
        self.log = Log(field.generation)
        self.log.extend(first_line)
        self.on_stop, self.on_lost = on_stop, on_lost
        self.is_in_flight = False
        """True while a write of the turn is under way: there is never more than one."""
        self.is_held = False
        """True while no write may begin, because an append of the turn is under way."""
        self.is_local = False
        """True if Redis knows nothing of the turn: nothing is written."""
        self.is_away = False
        """True if the last write did not reach Redis."""
        self.needs_beat = False
        """True if the lease must be extended, whether or not something was said."""
        self._limit_bytes = limit_bytes
        self._deltas: list[str] = []
        self._deltas_bytes = 0
        self.said: list[str] = []
        """The text since the last append, which the reply will contain."""
        self.settled = asyncio.Event()
        self.body: asyncio.Task[object] | None = None
        """The task in which the block of the turn began."""

    @property
    def unacknowledged_bytes(self) -> int:
        """The bytes that were said and that Redis has not acknowledged."""
        return len(self.content) + self._deltas_bytes - self.acknowledged

    @property
    def is_too_far_ahead(self) -> bool:
        """True if the caller must wait before it says more. While Redis is away, memory is the limit."""
        return self.unacknowledged_bytes > _UNACKNOWLEDGED_BYTES and not (self.is_away or self.is_local)

    @property
    def has_work(self) -> bool:
        """True if a write is due."""
        return not self.is_local and (self.needs_beat or self.unacknowledged_bytes > 0)

    def say(self, said: object) -> None:
        """Add a text or an event.

        Raises:
            InvalidMessage: the event is not one that a caller writes, or not JSON.
            TooLarge: the turn exceeds `max_turn_bytes`.
        """
        session_id = self.keys.session_id
        event = None if isinstance(said, str) else check_event(said, session_id)
        delta = said if isinstance(said, str) else ""
        if event is not None and event["type"] == "text":
            delta, event = event["delta"], None
        if event is None:
            size = len(delta) if delta.isascii() else len(delta.encode("utf-8", "surrogatepass"))
            self._check_size(size)
            if delta:
                self._deltas.append(delta)
                self._deltas_bytes += size
                self.said.append(delta)
            return
        line = encode_event(event)
        self._check_size(len(line))
        self._close_text()
        self.content += line

    def _check_size(self, more_bytes: int) -> None:
        size = len(self.content) + self._deltas_bytes + more_bytes
        if size > self._limit_bytes:
            over = over_limit("max_turn_bytes", self._limit_bytes)
            raise TooLarge(f"the events of the turn have {size} bytes, {over}", self.keys.session_id)

    def _close_text(self) -> None:
        """Make one event of the deltas since the last one."""
        if self._deltas:
            delta = "".join(self._deltas)
            self._deltas.clear()
            self._deltas_bytes = 0
            self.content += encode_event({"type": "text", "delta": delta})

    def next_write(self) -> TurnWrite:
        """Return the next write: what Redis does not have, or nothing, which extends the lease."""
        self._close_text()
        self.needs_beat = False
        until = self.acknowledged + _CHUNK_BYTES
        return TurnWrite(self.keys, self.field, self.acknowledged, bytes(self.content[self.acknowledged : until]))

    def acknowledge(self, reply: WriteReply) -> None:
        """Note what Redis has now."""
        self.is_away = False
        if reply.state == "lost":
            self.on_lost()
        elif reply.state == "differs" or reply.log_bytes > len(self.content):
            self.acknowledged = 0  # the whole log is written anew
        else:
            self.acknowledged = reply.log_bytes
            self._tell(reply.log_bytes)
        if reply.stop is not None:
            self.on_stop(reply.stop)
        self._settle()

    def note_away(self) -> None:
        """Note that a write did not reach Redis: listeners of this process are told everything."""
        self.is_away = True
        self.tell_all()

    def tell_all(self) -> None:
        """Tell the listeners of this process everything that was said, whether or not Redis has it."""
        self._close_text()
        self._tell(len(self.content))
        self._settle()

    def has_event_at(self, offset: int) -> bool:
        """True if an event ends at this offset, or the first one begins there. Listeners may not have been told it."""
        return ends_event(self.content, offset)

    def add_lines(self, lines: bytes, offset: int, log_bytes: int) -> None:
        """Add the lines that an append has put into the log at this offset; the log then has so many bytes.

        What was said during the append follows them.
        """
        self.content[offset:offset] = lines
        self.acknowledged = min(log_bytes, offset + len(lines))
        self._tell(offset + len(lines))

    def _tell(self, until: int) -> None:
        told = len(self.log.content)
        if until > told:
            self.log.extend(self.content[told:until])

    def _settle(self) -> None:
        settled, self.settled = self.settled, asyncio.Event()
        settled.set()

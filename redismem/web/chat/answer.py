"""An answer in progress: its text so far, its listeners and its end. A late listener still gets the whole text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from redismem.web.http.json import encode_json

HEARTBEAT_S = 15.0
_HEARTBEAT = b": still here\n\n"


def frame(event: str, document: Any, event_id: str = "") -> bytes:
    """Encode one event of a stream."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {event}\ndata: ".encode() + encode_json(document) + b"\n\n"


class LiveAnswer:
    """A reply in progress. Listeners share its text, so a slow listener needs no buffer of its own."""

    def __init__(self, turn_id: str, session_id: str, asked: str, grace_s: float) -> None:
        """Begin a reply to the message `asked`. Without listeners it continues for `grace_s`."""
        self.id = turn_id
        self.session_id = session_id
        self.asked = asked
        self.text = ""
        self.stop_reason = ""
        self.stopped = asyncio.Event()
        self.question_settled = asyncio.Event()
        """Set once the question is stored, or will not be."""
        self._grace_s = grace_s
        self._notices: list[dict[str, str]] = []
        self._end: dict[str, Any] | None = None
        self._changed = asyncio.Event()
        self._listeners_count = 0
        self._grace_timer: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        """True if the reply is complete or was stopped: no event follows."""
        return self._end is not None

    def add(self, text: str) -> None:
        """Append this text to the reply."""
        self.text += text
        self._wake_listeners()

    def notice(self, code: str, text: str) -> None:
        """Show the user a notice. Ignores a code that was shown before."""
        if any(notice["code"] == code for notice in self._notices):
            return
        self._notices.append({"code": code, "text": text})
        self._wake_listeners()

    def end(self, **document: Any) -> None:
        """End the stream with this document as its last event."""
        self._end = document
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        self._wake_listeners()

    def stop(self, reason: str) -> None:
        """Ask the reply to end with the text it has so far."""
        if not self.stopped.is_set():
            self.stop_reason = reason
            self.stopped.set()

    async def frames(self, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the events of the stream, from this character of the reply on."""
        self._join()
        try:
            yield frame("start", {"session_id": self.session_id, "turn": self.id})
            notices_count = 0
            while True:
                changed, end = self._changed, self._end
                for notice in self._notices[notices_count:]:
                    notices_count += 1
                    yield frame("notice", notice)
                if (text := self.text[offset:]) != "":
                    offset += len(text)
                    yield frame("text", {"text": text}, f"{self.id}.{offset}")
                if end is not None:
                    yield frame("end", end)
                    return
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await changed.wait()
                except TimeoutError:
                    yield _HEARTBEAT
        finally:
            self._leave()

    def _wake_listeners(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _join(self) -> None:
        self._listeners_count += 1
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None

    def _leave(self) -> None:
        self._listeners_count -= 1
        if not self._listeners_count and not self.has_ended:
            loop = asyncio.get_running_loop()
            self._grace_timer = loop.call_later(self._grace_s, self.stop, "nobody listened")


def parse_event_id(last_event_id: str) -> tuple[str, int] | None:
    """Return the turn and the offset in an event id; `None` if the id does not come from a stream of a chat."""
    turn_id, _, offset = last_event_id.rpartition(".")
    if not turn_id or not offset.isascii() or not offset.isdigit() or len(offset) > 10:
        return None
    return turn_id, int(offset)

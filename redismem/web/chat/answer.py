"""One answer on its way: what is said so far, who listens, and how it ends. Whoever listens late hears all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from redismem.web.http.json import encoded

HEARTBEAT_S = 15.0
_HEARTBEAT = b": still here\n\n"


def frame(event: str, document: Any, event_id: str = "") -> bytes:
    """One event of a stream."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {event}\ndata: ".encode() + encoded(document) + b"\n\n"


class Turn:
    """A reply while it comes into being. Both texts are all that is kept, so slow listeners cost nothing more."""

    def __init__(self, turn_id: str, session_id: str, asked: str, grace_s: float) -> None:
        """`asked`: what it answers. `grace_s`: how long it goes on when nobody listens any more."""
        self.id = turn_id
        self.session_id = session_id
        self.asked = asked
        self.text = ""
        self.stop_reason = ""
        self.stopped = asyncio.Event()
        self._grace_s = grace_s
        self._notices: list[dict[str, str]] = []
        self._end: dict[str, Any] | None = None
        self._changed = asyncio.Event()
        self._listeners_count = 0
        self._leaving: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self._end is not None

    def add(self, text: str) -> None:
        """Adds this text to the reply."""
        self.text += text
        self._tell()

    def notice(self, code: str, text: str) -> None:
        """Something that people should know, in words; once, however often it is so."""
        if any(each["code"] == code for each in self._notices):
            return
        self._notices.append({"code": code, "text": text})
        self._tell()

    def end(self, **document: Any) -> None:
        """Ends the stream with this document: nothing more comes."""
        self._end = document
        if self._leaving is not None:
            self._leaving.cancel()
        self._tell()

    def stop(self, reason: str) -> None:
        """Asks it to end with what is said so far."""
        if not self.stopped.is_set():
            self.stop_reason = reason
            self.stopped.set()

    async def frames(self, offset: int = 0) -> AsyncIterator[bytes]:
        """The events of its stream, from this character of the reply on."""
        self._join()
        try:
            yield frame("start", {"session_id": self.session_id, "turn": self.id})
            told_count = 0
            while True:
                changed, end = self._changed, self._end
                for notice in self._notices[told_count:]:
                    told_count += 1
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

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _join(self) -> None:
        self._listeners_count += 1
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def _leave(self) -> None:
        self._listeners_count -= 1
        if not self._listeners_count and not self.has_ended:
            loop = asyncio.get_running_loop()
            self._leaving = loop.call_later(self._grace_s, self.stop, "nobody listened")


def place(last_event_id: str) -> tuple[str, int] | None:
    """Turn and offset of an event's id; None if it is none of ours."""
    turn_id, _, offset = last_event_id.rpartition(".")
    if not turn_id or not offset.isascii() or not offset.isdigit() or len(offset) > 10:
        return None
    return turn_id, int(offset)

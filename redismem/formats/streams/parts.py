"""The parts of a turn, opened and closed in the order that all foreign formats want. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from redismem.formats.streams.encoding import SSE_HEADERS, to_json
from redismem.formats.streams.stream import Event, StreamTurn

_NAMELESS = "tool"


@dataclass(slots=True)
class Part:
    """A text, a span of reasoning, a tool call or its result: one unit that a format opens and closes."""

    kind: Literal["text", "reasoning", "call", "result"]
    number: int
    """The place among the parts of the turn, from 0."""
    id: str
    """Unique in the stream. A call has the id that its caller chose, and so has its result."""
    name: str = ""
    """The name of a call's tool."""
    pieces: list[str] = field(default_factory=list)
    """The deltas so far, if the format needs them when the part closes."""
    is_open: bool = True
    is_whole: bool = True
    """False for a closed part in whose middle the turn ended."""
    is_answer: bool = True
    """False for a result whose call was not written before."""

    def joined(self) -> str:
        """Return the text or the arguments so far."""
        return "".join(self.pieces)


class End(NamedTuple):
    """The end of a turn."""

    outcome: str
    reason: str
    usage: Any


class PartStream(ABC):
    """Converts events to a format of parts: `convert` opens and closes parts, a format writes each step.

    A text closes before another part opens, a call before its result, and everything before `message` and the end,
    whatever the outcome. Ids come from the generation and the order of the events, so every server makes equal bytes of
    one log. Events that are unknown or lack a member are left out.
    """

    content_headers: Mapping[str, str] = SSE_HEADERS

    def __init__(self, turn: StreamTurn) -> None:
        self.must_reconnect = False
        self._turn = turn
        self._frames: list[bytes] = []
        self._has_begun = self._has_ended = False
        self._parts_count = 0
        self._text: Part | None = None
        """The open text or reasoning."""
        self._calls: dict[str, Part] = {}
        """The newest call of each id that a caller chose."""
        self._open_calls: dict[str, Part] = {}
        self._call_ids: set[str] = set()

    def convert(self, event_id: str, event: Event) -> bytes:  # noqa: ARG002 (ids come from the order of the events)
        """Return the bytes that tell the client of an event; `b""` if the format has nothing to say."""
        if self._has_ended or self.must_reconnect:
            return b""
        kind = event.get("type")
        if kind == "reset":
            self.must_reconnect = self._has_begun
            return b""
        if not self._has_begun:
            self._has_begun = True
            self._write_begin()
        self._read(kind, event)
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def close(self) -> bytes:
        """Return the bytes that follow the event `end`; `b""` if the turn has not ended."""
        return b""

    def _read(self, kind: object, event: Event) -> None:
        match kind:
            case "text" | "reasoning":
                self._read_text(event)
            case "tool_call":
                self._read_call(event)
            case "tool_result":
                self._read_result(event)
            case "data":
                self._write_data(_string(event, "name") or "data", event.get("data"))
            case "notice":
                self._write_data("notice", {"code": _string(event, "code"), "text": _string(event, "text")})
            case "message":
                self._close_parts(is_whole=True)
            case "end":
                self._read_end(event)

    def _new_part(self, kind: Literal["text", "reasoning", "call", "result"], id: str = "", name: str = "") -> Part:
        number = self._parts_count
        self._parts_count += 1
        return Part(kind, number, id or f"{self._turn.key}.{number}", name)

    def _read_text(self, event: Event) -> None:
        delta, kind = _string(event, "delta"), event["type"]
        if not delta:
            return
        part = self._text
        if part is None or part.kind != kind:
            self._close_text(is_whole=True)
            part = self._text = self._new_part(kind)
            self._write_open(part)
        self._write_delta(part, delta)

    def _read_call(self, event: Event) -> None:
        given, delta, is_done = _string(event, "id"), _string(event, "delta"), bool(event.get("done"))
        if not given:
            return
        call = self._calls.get(given)
        if call is None or (delta and not call.is_open):  # some models use an id again
            call = self._open_call(given, event)
        if delta:
            self._write_delta(call, delta)
        if is_done:
            self._close_call(call, is_whole=True)

    def _open_call(self, given: str, event: Event) -> Part:
        self._close_text(is_whole=True)
        id = given
        while id in self._call_ids:
            id = f"{id}.{self._parts_count}"
        self._call_ids.add(id)
        call = self._new_part("call", id, _string(event, "name") or _NAMELESS)
        self._calls[given] = self._open_calls[id] = call
        self._write_open(call)
        return call

    def _read_result(self, event: Event) -> None:
        given = _string(event, "id")
        if not given:
            return
        call = self._calls.get(given)
        self._close_text(is_whole=True)
        if call is not None:
            self._close_call(call, is_whole=True)
        result = self._new_part("result", given if call is None else call.id)
        result.is_answer = call is not None
        self._write_result(result, event.get("content"))

    def _read_end(self, event: Event) -> None:
        self._close_parts(is_whole=event.get("outcome") == "done")
        self._has_ended = True
        self._write_end(End(_string(event, "outcome"), _string(event, "reason"), event.get("usage")))

    def _close_parts(self, *, is_whole: bool) -> None:
        self._close_text(is_whole=is_whole)
        for call in list(self._open_calls.values()):
            self._close_call(call, is_whole=is_whole)

    def _close_text(self, *, is_whole: bool) -> None:
        part, self._text = self._text, None
        if part is not None:
            part.is_open, part.is_whole = False, is_whole
            self._write_close(part)

    def _close_call(self, call: Part, *, is_whole: bool) -> None:
        if call.is_open:
            call.is_open, call.is_whole = False, is_whole
            del self._open_calls[call.id]
            self._write_close(call)

    @abstractmethod
    def _write_begin(self) -> None:
        """Write what comes before the first part."""

    @abstractmethod
    def _write_open(self, part: Part) -> None:
        """Write that a text, reasoning or call begins."""

    @abstractmethod
    def _write_delta(self, part: Part, delta: str) -> None:
        """Write more of an open part; the delta is not empty."""

    @abstractmethod
    def _write_close(self, part: Part) -> None:
        """Write that no more of a part comes."""

    @abstractmethod
    def _write_result(self, result: Part, content: Any) -> None:
        """Write the result of a tool."""

    @abstractmethod
    def _write_data(self, name: str, data: Any) -> None:
        """Write data of the application, or a notice."""

    @abstractmethod
    def _write_end(self, end: End) -> None:
        """Write the end of the turn. All parts are closed."""


def describe_failure(end: End) -> str:
    """Return what a client shows of a turn that failed or was lost."""
    if end.outcome == "lost":
        return "The answer was lost: the process that wrote it stopped."
    return f"The answer failed: {end.reason}" if end.reason else "The answer failed."


def text_of(content: Any) -> str:
    """Return the content of a result as text: JSON of anything else."""
    return content if isinstance(content, str) else to_json(content)


def _string(event: Event, name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""

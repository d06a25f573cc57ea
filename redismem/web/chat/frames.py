"""The stream of `POST /api/chat`: start, recalled, text, tool_call, notice, end. An id counts characters of text."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from redismem.errors import RedismemError
from redismem.formats.streams.encoding import frame
from redismem.live.turn import MODEL_FAILED
from redismem.session.session import Session
from redismem.web.chat.chat import CLEARED, NOT_TAKEN, RECALLED, Events

_NOTICES = {
    CLEARED: "This conversation was cleared meanwhile, so this answer is not stored.",
    "not_stored": "This answer or the whole conversation is too long for the memory: the answer is not stored.",
    "failed": "Something went wrong. Your message may not be stored; please try again.",
}
_NOT_STORED = "not stored"
TOOL_CALLS = "tool_calls"
"""The reason of an answer that ends with calls of the caller's tools, and goes on with their results."""


async def chat_frames(session: Session, turn_id: str, events: Events, offset: int = 0) -> AsyncGenerator[bytes, None]:
    """Yield the events of a turn as frames, from this character of the answer on.

    After a reset, the characters that were told are not told again.
    """
    yield frame({"session_id": session.id, "turn": turn_id}, "start")
    at, calls = 0, _Calls()
    async for _, event in events:
        match event["type"]:
            case "text":
                at += len(event["delta"])
                if at > offset:
                    yield frame({"text": event["delta"][offset - at :]}, "text", f"{turn_id}.{at}")
                    offset = at
            case "tool_call" | "tool_result":
                yield calls.take(event)
            case "reset":
                at, calls = 0, _Calls()
            case "data" if event["name"] == RECALLED:
                yield frame(event["data"], RECALLED)
            case "notice":
                yield frame({"code": event["code"], "text": event["text"]}, "notice")
            case "end":
                async for each in _end_frames(session, event, has_calls=calls.are_open):
                    yield each
                return


class _Calls:
    """The tool calls of a turn, each told once it is whole."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, Any]] = {}

    @property
    def are_open(self) -> bool:
        """True if a call has no result: the caller runs it."""
        return bool(self._calls)

    def take(self, event: dict[str, Any]) -> bytes:
        """Take a part of a call, or a result. Return the frame of a call that is whole now, or `b""`."""
        if event["type"] == "tool_result":
            self._calls.pop(event["id"], None)
            return b""
        call = self._calls.setdefault(event["id"], {"id": event["id"], "name": "", "arguments": ""})
        call["name"] = call["name"] or event.get("name", "")
        call["arguments"] += event.get("delta", "")
        return frame({**call, "arguments": call["arguments"] or "{}"}, "tool_call") if event.get("done") else b""


async def _end_frames(session: Session, end: dict[str, Any], *, has_calls: bool) -> AsyncGenerator[bytes, None]:
    outcome, reason, seq = end["outcome"], end["reason"] or end["outcome"], end["seq"]
    if outcome == "done" and has_calls:
        reason = TOOL_CALLS
    if reason == CLEARED:
        yield _notice(CLEARED)
        seq = None
    elif outcome == "failed" and reason.startswith(_NOT_STORED):
        yield _notice("not_stored")
        reason = _NOT_STORED
    elif outcome == "failed" and reason not in (MODEL_FAILED, NOT_TAKEN):
        yield _notice("failed")
        reason = "failed"
    waiting = None
    with contextlib.suppress(RedismemError):
        waiting = (await session.state()).waiting_for_param
    yield frame({"complete": outcome == "done", "reason": reason, "seq": seq, "waiting_for": waiting}, "end")


def _notice(code: str) -> bytes:
    return frame({"code": code, "text": _NOTICES[code]}, "notice")

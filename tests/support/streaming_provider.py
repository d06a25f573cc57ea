"""A server on 127.0.0.1 that streams like the three providers, and breaks off on demand.

    async with StreamingProvider() as provider:
        model = open_streaming("openai", "m", base_url=provider.base_url, allow_http=True)
        provider.mode = "break"

Modes: ok; 500, 401; break (the connection ends after two pieces), cut (an end without the provider's word for it),
error (an event that says so, after two pieces), limit (all pieces, then the provider's word for the limit of
tokens), hang (after two pieces, until `release()`), silent (at once), refuse, empty, garbage.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Self

from support.listening import Listening

PIECES = ["Your ", "parcel ", "is ", "on ", "its ", "way."]
TEXT = "".join(PIECES)


class StreamingProvider:
    def __init__(self) -> None:
        self.mode = "ok"
        self.pieces = list(PIECES)
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.aborted = asyncio.Event()
        """Whoever asked has left in the middle."""
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    def hold(self) -> None:
        """The next one hangs, or is silent, until it is released again."""
        self._released.clear()

    async def __aenter__(self) -> Self:
        self._listening = Listening(self._answer)
        self.base_url = f"http://127.0.0.1:{self._listening.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()
        await self._listening.end()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(re.findall(r"(?im)^content-length: (\d+)", head)[0])
        self.asked.append(json.loads(await reader.readexactly(length)))
        path = head.split()[1]
        self.paths.append(path)
        self.heads.append(head)
        if self.mode.isdigit():
            body = b'{"error":{"code":"server_error","message":"canary-echo"}}'
            writer.write(b"HTTP/1.1 %s No\r\nContent-Length: %d\r\n\r\n%s" % (self.mode.encode(), len(body), body))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            async for event in self._events(_provider_of(path)):
                # Two writes: an event need not come in one piece.
                writer.write(event[:7])
                await writer.drain()
                writer.write(event[7:])
                await writer.drain()
                if reader.at_eof():
                    self.aborted.set()
        await writer.drain()

    async def _events(self, provider: str) -> AsyncIterator[bytes]:
        if self.mode == "silent":
            await self._released.wait()
        if self.mode == "garbage":
            yield b"data: {nonsense\n\n"
            return
        if self.mode == "refuse":
            yield _event(REFUSED[provider])
            return
        pieces = [] if self.mode == "empty" else self.pieces
        for number, text in enumerate(pieces):
            if number == 2 and self.mode == "break":
                return
            if number == 2 and self.mode == "error":
                yield _event(ERRORS[provider])
                return
            if number == 2 and self.mode == "hang":
                await self._released.wait()
            yield b": a comment\r\n\r\n" + _event(piece_of(provider, text))
        if self.mode != "cut":
            for end in LIMITS[provider] if self.mode == "limit" else ENDS[provider]:
                yield end if isinstance(end, bytes) else _event(end)


def _event(document: dict[str, Any]) -> bytes:
    return b"event: x\ndata: %s\n\n" % json.dumps(document).encode()


def _provider_of(path: str) -> str:
    if path.partition("?")[0].endswith("/chat/completions"):
        return "openai"
    return "gemini" if ":streamGenerateContent" in path else "anthropic"


def piece_of(provider: str, text: str) -> dict[str, Any]:
    """One piece of an answer, as a provider sends it."""
    match provider:
        case "openai":
            return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        case "anthropic":
            return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}]}


ENDS: dict[str, list[Any]] = {
    "openai": [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, b"data: [DONE]\n\n"],
    "anthropic": [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}],
    "gemini": [{"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}]}],
}
LIMITS: dict[str, list[Any]] = {
    "openai": [{"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}, b"data: [DONE]\n\n"],
    "anthropic": [{"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}, {"type": "message_stop"}],
    "gemini": [{"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}],
}
ERRORS: dict[str, dict[str, Any]] = {
    "openai": {"error": {"message": "canary-echo", "type": "server_error"}},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "canary-echo"}},
    "gemini": {"error": {"code": 503, "message": "canary-echo"}},
}
REFUSED: dict[str, dict[str, Any]] = {
    "openai": {"choices": [{"delta": {}, "finish_reason": "content_filter"}]},
    "anthropic": {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
    "gemini": {"promptFeedback": {"blockReason": "SAFETY"}},
}

"""A server on 127.0.0.1 that answers like the three providers, and fails on demand.

    with ProviderServer() as server:
        model = open_model("gemini", "some-model", "key", base_url=server.base_url, allow_http=True)
        server.mode = "500"

Each request takes the next of `modes`, or `mode` once `modes` is empty. A request that hangs is answered after
`release()`. The server runs in a thread of its own, so it serves blocking callers and other processes as well.

Modes of a streamed answer: ok; break (the connection ends after two pieces), cut (it ends without the provider's
end mark), error (an error event after two pieces), limit (all pieces, then the limit of tokens), hang (after two
pieces), silent (before the first piece), drip (a piece each 50 ms), refused, empty, garbage, and those of `FAILURES`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from redismem import Message
from redismem.errors import ModelFailed
from support.listening import Listening
from support.provider_answers import (
    ANSWERS,
    CUT_SHORT,
    FAILURES,
    PIECES,
    REFUSED,
    STREAM_ENDS,
    STREAM_ERRORS,
    STREAM_LIMITS,
    STREAM_MESSAGES,
    STREAM_REFUSED,
    STREAM_STARTS,
    TOOL_CALLS,
    VECTORS,
    encode_event,
    finish_reason,
    make_vectors,
    stream_piece,
)
from support.waiting import START_S

HUGE_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True)
class Asked:
    """A request as received."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def provider(self) -> str:
        path = self.path.partition("?")[0]
        if path.endswith(("/chat/completions", "/embeddings")):
            return "openai"
        endings = (":generateContent", ":streamGenerateContent", ":batchEmbedContents")
        return "gemini" if path.endswith(endings) else "anthropic"

    @property
    def is_streamed(self) -> bool:
        return ":streamGenerateContent" in self.path or bool(self.body.get("stream"))

    @property
    def texts(self) -> list[str] | None:
        """The texts to embed; `None` for a request that is not about vectors."""
        if "requests" in self.body:
            return [each["content"]["parts"][0]["text"] for each in self.body["requests"]]
        return self.body.get("input")


def request_turns(asked: Asked) -> list[tuple[str, str]]:
    """Return (role, text) of each turn in a request, with OpenAI's roles."""
    if asked.provider == "gemini":
        names = {"user": "user", "model": "assistant"}
        return [(names[turn["role"]], turn["parts"][0]["text"]) for turn in asked.body["contents"]]
    return [(turn["role"], turn["content"]) for turn in asked.body["messages"] if turn["role"] != "system"]


def system_of(asked: Asked) -> str:
    """Return the system text of a request."""
    if asked.provider == "openai":
        return "\n".join(turn["content"] for turn in asked.body["messages"] if turn["role"] == "system")
    if asked.provider == "anthropic":
        return str(asked.body["system"])
    return str(asked.body["systemInstruction"]["parts"][0]["text"])


def answer_bytes(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def http_date_in(seconds: float) -> str:
    """Return the HTTP date that many seconds from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


_PIECE_BYTES = 64 * 1024
_DRIP_S = 0.05
"""The pace of a slow server."""


class ProviderServer:
    """The server; the module says how to use it."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.modes: deque[str] = deque()
        self.text: Any = "They want order W123 back by May 5."
        self.raw = b""
        """The body in mode `raw`; mode `half` sends one half of it, and hangs."""
        self.headers: dict[str, str] = {}
        """Additional headers of every answer."""
        self.pieces = list(PIECES)
        """The pieces of a streamed answer."""
        self.script: deque[dict[str, Any]] = deque()
        """Messages of OpenAI's chat format. An answer in mode `ok` takes the next one; a whole one is OpenAI's."""
        self.asked: list[Asked] = []
        self.left_count = 0
        """Streams that their client closed before the end."""
        self.port = 0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._released = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ProviderServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._listening.end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    @property
    def bodies(self) -> list[Any]:
        """The bodies of all requests."""
        return [asked.body for asked in self.asked]

    def release(self) -> None:
        """Answer the requests that hang, and let no later one hang."""
        self._loop.call_soon_threadsafe(self._released.set)

    def hold(self) -> None:
        """Let requests hang again after a `release()`."""
        self._loop.call_soon_threadsafe(self._released.clear)

    def wait_for_asked(self, count: int, deadline_s: float = START_S) -> None:
        """Wait until this many requests have arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, deadline_s), len(self.asked)

    async def _start(self) -> None:
        self._listening = Listening(self._converse, limit=64 * 1024 * 1024)
        self.port = self._listening.port

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await _request(reader)
            with self._changed:
                self.asked.append(asked)
                self._changed.notify_all()
            mode = self.modes.popleft() if self.modes else self.mode
            if asked.is_streamed and mode not in FAILURES:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
                await self._stream(asked.provider, mode, writer)
                return
            await self._answer(asked, mode, writer)

    async def _stream(self, provider: str, mode: str, writer: asyncio.StreamWriter) -> None:
        try:
            async for event in self._events(provider, mode):
                for part in (event[:7], event[7:]):  # a client must not rely on whole events
                    writer.write(part)
                    await writer.drain()
        except ConnectionError:
            self.left_count += 1
            raise

    async def _events(self, provider: str, mode: str) -> AsyncIterator[bytes]:
        if mode == "silent":
            await self._released.wait()
        whole = self._whole_stream(provider, mode)
        for event in whole or map(encode_event, STREAM_STARTS[provider]):
            yield event
        for number, text in enumerate([] if whole or mode == "empty" else self.pieces):
            if number == 2 and mode == "break":
                return
            if number == 2 and mode == "error":
                yield encode_event(STREAM_ERRORS[provider])
                return
            if number == 2 and mode == "hang":
                await self._released.wait()
            if mode == "drip":
                await asyncio.sleep(_DRIP_S)
            yield b": a comment\r\n\r\n" + encode_event(stream_piece(provider, text))
        if not whole and mode != "cut":
            for end in STREAM_LIMITS[provider] if mode == "limit" else STREAM_ENDS[provider]:
                yield end if isinstance(end, bytes) else encode_event(end)

    def _whole_stream(self, provider: str, mode: str) -> list[bytes]:
        """Return all events of a stream that is not made of `pieces`; empty for one that is."""
        if mode == "garbage":
            return [b"data: {nonsense\n\n"]
        if mode == "refused":
            return [encode_event(STREAM_REFUSED[provider])]
        if mode == "ok" and self.script:
            done = [b"data: [DONE]\n\n"] if provider == "openai" else []
            return [*map(encode_event, STREAM_MESSAGES[provider](self.script.popleft())), *done]
        return []

    async def _answer(self, asked: Asked, mode: str, writer: asyncio.StreamWriter) -> None:
        if mode == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            raise ConnectionError
        if mode == "drop":
            raise ConnectionError
        if mode == "hang":
            await self._released.wait()
        status, body, headers = self._reply(asked, mode)
        whole = answer_bytes(status, body, headers | self.headers)
        if mode == "cut":
            await self._send(writer, whole[:-10])
            raise ConnectionError
        if mode == "drip":
            for at in range(len(whole)):
                await self._send(writer, whole[at : at + 1])
                await asyncio.sleep(_DRIP_S)
        stop = {"drip": 0, "half": len(whole) // 2}.get(mode, len(whole))
        for at in range(0, stop, 64 * 1024):
            await self._send(writer, whole[at : at + 64 * 1024])
        if mode == "half":
            await self._released.wait()

    async def _send(self, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        # In pieces, so that bytes which the client does not read are not copied into a buffer.
        for at in range(0, len(chunk), _PIECE_BYTES):
            writer.write(chunk[at : at + _PIECE_BYTES])
            await writer.drain()

    def _reply(self, asked: Asked, mode: str) -> tuple[int, bytes, dict[str, str]]:
        json_headers = {"content-type": "application/json"}
        if mode in FAILURES:
            status, error = FAILURES[mode]
            return status, json.dumps({"error": error}).encode(), json_headers
        if mode == "redirect":
            return 307, b"", {"location": f"{self.base_url}/elsewhere"}
        if mode in ("raw", "half"):
            return 200, self.raw, json_headers
        if asked.texts is not None:
            return 200, json.dumps(VECTORS[asked.provider](make_vectors(asked.texts, mode))).encode(), json_headers
        return 200, self._body(asked.provider, mode), json_headers

    def _body(self, provider: str, mode: str) -> bytes:
        answer = ANSWERS[provider]
        if mode == "ok" and provider == "openai" and self.script:
            message = self.script.popleft()
            return json.dumps(answer(None, message=message, finish_reason=finish_reason(message))).encode()
        if mode in ("ok", "hang", "drip", "cut"):
            return json.dumps(answer(self.text)).encode()
        if mode == "huge":
            return json.dumps(answer("x" * HUGE_BYTES)).encode()
        fixed = {
            "garbage": b"<html>502 Bad Gateway</html>",
            "not-utf8": json.dumps(answer("caf@"), ensure_ascii=False).encode().replace(b"@", b"\xe9"),
            "surrogate": json.dumps(answer("half \ud83d of a pair")).encode(),
            "control": json.dumps(answer("a\x00b\x1b[31mc\u202ed\r\ne")).encode(),
            "empty": json.dumps(answer(" \n\t ")).encode(),
            "number": json.dumps(answer(42)).encode(),
            "deep": b"[" * 200_000,
            "nothing": b"",
            "null": b"null",
            "length": json.dumps(answer("cut sho", **CUT_SHORT[provider])).encode(),
            "refused": json.dumps(REFUSED[provider]).encode(),
            "tool_calls": json.dumps(TOOL_CALLS[provider]).encode(),
        }
        return fixed[mode]


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


MESSAGES = [Message("user", "Where is my order?"), Message("assistant", "On its way: canary-text.")]


async def catch_failure(model: Any, messages: Any = MESSAGES) -> ModelFailed:
    async with asyncio.timeout(60):
        with pytest.raises(ModelFailed) as caught:
            await model.summarize(messages, None, 300)
    return caught.value

"""What is handed over of a session before it is evicted, and a file to hand it to."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from redismem.context import Context

OnEvict = Callable[[str, Context], Awaitable[None]]
"""Called with the session id and all that the session holds, before it is removed. Called again where the worker died,
or a message came in between and the session stayed: the newest transcript of an epoch holds the most.
"""


class JsonlArchive:
    """An `on_evict` that writes transcripts to a file, a line each: session_id, epoch, summaries, messages, state."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = asyncio.Lock()

    async def __call__(self, session_id: str, context: Context) -> None:
        line = json.dumps(
            {
                "session_id": session_id,
                "epoch": context.epoch,
                "summaries": [asdict(summary) for summary in context.summaries],
                "messages": [message.to_openai() for message in context.messages],
                "state": asdict(context.state),
            }
        )
        async with self._lock:
            await asyncio.to_thread(self._write, line.encode() + b"\n")

    def _write(self, line: bytes) -> None:
        # Unbuffered: one write a line, so that several processes may share the file.
        with open(self._path, "ab", buffering=0, opener=_open_private) as file:
            if file.write(line) != len(line):
                raise OSError("the archive took a part of a line")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)

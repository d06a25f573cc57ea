"""A strategy that records its calls, fails and hangs on demand; and messages for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from redismem import Message, Session
from redismem.models import Draft
from redismem.workers.strategies import Dropped


class Echo:
    """A strategy whose summary is the texts of the messages, or of the summaries that it folds."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        """The seqs of each call's messages; empty for a fold."""
        self.failures: deque[BaseException] = deque()
        """Errors of the first calls, one per call."""
        self.drafts: deque[Draft | Dropped] = deque()
        """Results of the first calls, one per call."""
        self.hanging: str | None = None
        """A text; calls whose messages contain it wait for `gate`."""
        self.gate = asyncio.Event()
        self.started = asyncio.Event()
        self.cancelled_count = 0

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft | Dropped:
        self.seen.append([message.seq for message in messages])
        text = previous or " ".join(str(message.content) for message in messages)
        if self.hanging is not None and self.hanging in text:
            self.started.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled_count += 1
                raise
        if self.failures:
            raise self.failures.popleft()
        return self.drafts.popleft() if self.drafts else Draft(text, 0, 0, "echo")


def chat_message(number: int, text: str = "message") -> dict[str, Any]:
    return {"role": "user" if number % 2 else "assistant", "content": f"{text} {number}"}


def call_message(*ids: str) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result_message(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": f"result of {id}"}


async def fill(session: Session, count: int, text: str = "message") -> None:
    """Append messages with their seqs as text, one append per message."""
    for number in range(1, count + 1):
        await session.append(chat_message(number, text))

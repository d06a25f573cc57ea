"""Limits, messages and a context for tests of pins, pops and replacements."""

from __future__ import annotations

from typing import Any

from redismem import Memory
from redismem.context.context import Context
from redismem.context.results import State
from redismem.inspection.check import check
from redismem.messages.gaps import encode_gap
from redismem.messages.message import Message
from redismem.models import open_extractive
from redismem.protocol.session.edits import View
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

SMALL = {"threshold": 4, "recent_limit": 2, "shards": 2}
SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "It is on its way."}


def seqs(messages: list[Message]) -> list[int]:
    return [message.seq for message in messages]


def payloads(messages: list[Message]) -> list[dict[str, Any]]:
    return [message.to_openai() for message in messages]


async def summarize(memory: Memory) -> int:
    return await Worker(memory.store, Summarize(open_extractive())).drain()


async def is_sound(memory: Memory) -> bool:
    """True if all invariants hold."""
    return [violation async for violation in check(memory.store)] == []


def context_of_four() -> Context:
    """Return the context of a session with four elements from seq 5; the second is pinned, the last is a gap."""
    messages = [Message("user", content) for content in ("first", "second", "third")]
    for seq, message in enumerate(messages, 5):
        message.seq, message.tokens, message.epoch = seq, 10 * seq, "9-ab"
    first, pinned, third = messages
    made = Context("user-42", [], [first, third], State(), 8, 5, 8, "9-ab", 5, window_version="v-7")
    made.pinned = [pinned.with_pin(True)]
    return made


VIEW = View(
    context_of_four(),
    {b"counters": b"v1 5 8 120 1 2+2"},
    [*(b"element %d" % number for number in range(3)), encode_gap(1) + b"\xcf" + bytes(8)],
)

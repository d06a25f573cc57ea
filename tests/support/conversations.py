"""Messages of users, and random conversations whose pairs of tool calls and results are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from redismem.messages.message import Message


def user_message(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def contents(messages: list[Message]) -> list[Any]:
    return [message.content for message in messages]


@dataclass
class Conversation:
    """A conversation. `pairs` are (call, result) as indexes of `payloads`; a call of -1 does not exist."""

    payloads: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        found = [Message.from_openai(payload) for payload in self.payloads]
        for seq, message in enumerate(found, 1):
            message.seq = seq
            message.tokens = len(str(message.content)) % 7
        return found

    def seq_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs by seq, which starts at 1; 0 is a call that does not exist."""
        return [(call + 1, result + 1) for call, result in self.pairs]


def is_closed(pairs: Iterable[tuple[int, int]], start: int, stop: int) -> bool:
    """True if no pair crosses a border of the range from start to stop, without stop."""
    for call, result in pairs:
        if start <= result < stop and not start <= call < stop:
            return False
        if start <= call < stop and not start <= result < stop:
            return False
    return True


@st.composite
def conversations(draw: st.DrawFn, max_size: int = 30, orphans: bool = True) -> Conversation:
    """Draw parallel calls, late, reordered and missing results, and reused ids.

    With `orphans` there are also results without a call.
    """
    told = Conversation()
    made: dict[str, int] = {}
    waiting: list[str] = []
    for place in range(draw(st.integers(0, max_size))):
        kind = draw(st.sampled_from(["say", "say", "call", "call", "answer", "answer", "answer", "orphan"]))
        if kind == "call":
            ids = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True))
            calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{"}} for id in ids]
            told.payloads.append({"role": "assistant", "content": None, "tool_calls": calls})
            made.update((id, place) for id in ids)
            waiting += ids
        elif kind == "answer" and waiting:
            id = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            told.payloads.append({"role": "tool", "tool_call_id": id, "content": f"result {place}"})
            told.pairs.append((made[id], place))
        elif kind == "orphan" and orphans:
            told.payloads.append({"role": "tool", "tool_call_id": f"nobody {place}", "content": "x"})
            told.pairs.append((-1, place))
        else:
            told.payloads.append({"role": draw(st.sampled_from(["user", "assistant"])), "content": "x" * place})
    return told

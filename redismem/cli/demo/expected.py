"""The demo's turns, and a model of the session after each turn, with which the memory is compared. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from redismem.context import Context, Receipt, State
from redismem.info import SessionInfo
from redismem.messages.message import Message, is_pinned

_STATE = ("merge", "waiting", "last_intent", "last_result", "plan")


@dataclass(frozen=True, slots=True)
class Turn:
    """A call of the host, read from the bundled file."""

    number: int
    id: str
    note: str
    reads: bool
    messages: list[dict[str, Any]]
    change: dict[str, Any]
    """The state parameters that this turn sets: `merge`, `waiting` and so on."""
    drain: dict[str, Any] | None
    """A note and the words that the summary must keep; `None` means no drain after this turn."""


def bundled_turns() -> Iterator[Turn]:
    text = (files("redismem.cli.demo") / "demo.jsonl").read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        row = json.loads(line)
        change = {name: row[name] for name in _STATE if name in row}
        yield Turn(number, row["id"], row["note"], row.get("read", False), row["messages"], change, row.get("drain"))


@dataclass(frozen=True, slots=True)
class Played:
    """A turn, the context after it, and the differences from the expected context."""

    turn: Turn
    receipt: Receipt
    context: Context
    info: SessionInfo
    trips: int
    ms: float
    wrong: list[str]


@dataclass(frozen=True, slots=True)
class Drained:
    """The session after a worker's drain, and the differences from the expected session."""

    note: str
    context: Context
    info: SessionInfo
    ms: float
    wrong: list[str]


@dataclass(slots=True)
class Check:
    """A check at the end: its name, its outcome, and true if the outcome is right."""

    name: str
    seen: str
    good: bool


@dataclass(slots=True)
class Expected:
    """The messages, state and summary that the memory must hold."""

    threshold: int
    recent_limit: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(_STATE[1:]) | {"merge": {}})
    covered: list[tuple[int, int]] = field(default_factory=list)
    """The first and last seq of the summary; empty before the first drain."""
    leaving: list[int] = field(default_factory=list)
    """The seqs that the last drain added to the summary."""
    first_seq: int = 1
    """The seq of the first message of the window."""
    summary_version: str = ""

    @property
    def window(self) -> list[int]:
        """The seqs of the messages that are neither summarised nor pinned."""
        return [seq for seq, each in enumerate(self.messages, 1) if seq >= self.first_seq and not is_pinned(each, None)]

    def apply_turn(self, turn: Turn) -> None:
        self.messages += turn.messages
        change = dict(turn.change)
        self.state["merge"] = self.state["merge"] | change.pop("merge", {})
        self.state |= change

    def apply_drain(self) -> None:
        """Extend the summary to all messages of the window except the recent ones."""
        *self.leaving, self.first_seq = self.window[: 1 - self.recent_limit]
        self.covered = [((self.covered[0][0] if self.covered else self.leaving[0]), self.leaving[-1])]

    def differences(self, context: Context, info: SessionInfo) -> list[str]:
        """Describe each difference between the session and the model."""
        window = self.window
        queue = "overdue" if len(window) > self.threshold else None
        pinned = [message for message in self.messages if is_pinned(message, None)]
        quoted = [summary.to_openai() for summary in context.summaries]
        comparisons = (
            (
                "the messages for the model",
                context.to_openai(),
                pinned + quoted + [self.messages[seq - 1] for seq in window],
            ),
            ("pending", [each.seq for each in context.pending], window[: -self.recent_limit]),
            ("recent", [each.seq for each in context.recent], window[-self.recent_limit :]),
            ("total_messages", context.total_messages, len(self.messages)),
            ("the state", _as_change(context.state), self.state),
            ("the window's count", info.window_count, len(window)),
            ("the queue", info.queued, queue),
            ("the summaries' ranges", _ranges(context), self.covered),
        )
        return [f"{name} differ" for name, actual, expected in comparisons if not same(actual, expected)]

    def summary_differences(self, context: Context, originals: list[Message], keeps: list[str]) -> list[str]:
        """Describe each fault of the newest summary and of the originals it covers."""
        if not context.summaries:
            return ["there is no summary"]
        newest, quoted = context.summaries[-1], context.to_openai()[len(context.pinned) + len(context.summaries) - 1]
        covered = [each for each in originals if newest.first_seq <= each.seq <= newest.last_seq and not each.pinned]
        times = [message.time_ms for message in covered]
        content = str(quoted["content"])
        rules = {
            "the originals differ": same([each.to_openai() for each in originals], self.messages),
            "the summary names other messages": newest.message_ids[-len(self.leaving) :]
            == tuple(str(message.id) for message in covered if message.seq in self.leaving),
            "the summary has other times": bool(times) and (newest.start_ms, newest.end_ms) == (min(times), max(times)),
            "the summary is not quoted, with its range": quoted["role"] == "user"
            and f"{newest.first_seq} to {newest.last_seq}" in content
            and content.endswith(f"<summary>\n{newest.text}\n</summary>"),
            "the summary is not shorter": newest.tokens < sum(message.tokens for message in covered),
            "summary_version is unchanged": context.summary_version != self.summary_version,
        }
        rules |= {f"the summary does not keep {word}": word in newest.text for word in keeps}
        return [name for name, good in rules.items() if not good]


def _ranges(context: Context) -> list[tuple[int, int]]:
    return [(summary.first_seq, summary.last_seq) for summary in context.summaries]


def _as_change(state: State) -> dict[str, Any]:
    return {
        "merge": state.params,
        "waiting": state.waiting_for_param,
        "last_intent": state.last_intent,
        "last_result": state.last_result,
        "plan": state.plan,
    }


def same(actual: Any, expected: Any) -> bool:
    """True if both values are the same JSON text: 1, 1.0 and true differ, and so do null and an absent key.

    The order of keys matters within lists of messages, but not within params.
    """
    ordered = isinstance(expected, list)
    return json.dumps(actual, sort_keys=not ordered) == json.dumps(expected, sort_keys=not ordered)

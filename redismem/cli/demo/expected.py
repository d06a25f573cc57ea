"""What the demo puts in, what it gets back, and what the memory must hold: kept beside it, and compared. No I/O."""

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
    """One call of the host, as the file has it."""

    number: int
    id: str
    note: str
    reads: bool
    messages: list[dict[str, Any]]
    change: dict[str, Any]
    """`merge`, `waiting` and the others, if this turn sets them."""
    drain: dict[str, Any] | None
    """A note, and words that the summary must keep, if a worker drains after it."""


def bundled_turns() -> Iterator[Turn]:
    text = (files("redismem.cli.demo") / "demo.jsonl").read_text("utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        row = json.loads(line)
        change = {name: row[name] for name in _STATE if name in row}
        yield Turn(number, row["id"], row["note"], row.get("read", False), row["messages"], change, row.get("drain"))


@dataclass(frozen=True, slots=True)
class Played:
    """A turn, what the model would be given after it, and what is wrong with that."""

    turn: Turn
    receipt: Receipt
    context: Context
    info: SessionInfo
    trips: int
    ms: float
    wrong: list[str]


@dataclass(frozen=True, slots=True)
class Drained:
    """What a worker's drain left, and what is wrong with that."""

    note: str
    context: Context
    info: SessionInfo
    ms: float
    wrong: list[str]


@dataclass(slots=True)
class Check:
    """Something shown at the end: what was done, what came of it, and whether it had to."""

    name: str
    seen: str
    good: bool


@dataclass(slots=True)
class Expected:
    """What the memory must hold."""

    threshold: int
    recent_limit: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(_STATE[1:]) | {"merge": {}})
    covered: list[tuple[int, int]] = field(default_factory=list)
    """The first and last seq of the summary, once there is one."""
    leaving: list[int] = field(default_factory=list)
    """The seqs that it covers since the last drain."""
    first_seq: int = 1
    """The seq of the first message of the window."""
    summary_version: str = ""

    @property
    def window(self) -> list[int]:
        """The seqs that are neither covered nor pinned."""
        return [seq for seq, each in enumerate(self.messages, 1) if seq >= self.first_seq and not is_pinned(each, None)]

    def take(self, turn: Turn) -> None:
        self.messages += turn.messages
        change = dict(turn.change)
        self.state["merge"] = self.state["merge"] | change.pop("merge", {})
        self.state |= change

    def take_drain(self) -> None:
        """All but the recent ones are covered now, by the one summary."""
        *self.leaving, self.first_seq = self.window[: 1 - self.recent_limit]
        self.covered = [((self.covered[0][0] if self.covered else self.leaving[0]), self.leaving[-1])]

    def differences(self, context: Context, info: SessionInfo) -> list[str]:
        """What is not as it must be, in words."""
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
        return [f"{name} differ" for name, found, wanted in comparisons if not same(found, wanted)]

    def summary_differences(self, context: Context, originals: list[Message], keeps: list[str]) -> list[str]:
        """What is not as it must be after a drain: about the newest summary, and about what it stands for."""
        if not context.summaries:
            return ["there is no summary"]
        newest, quoted = context.summaries[-1], context.to_openai()[len(context.pinned) + len(context.summaries) - 1]
        stands_for = [each for each in originals if newest.first_seq <= each.seq <= newest.last_seq and not each.pinned]
        times = [each.time_ms for each in stands_for]
        content = str(quoted["content"])
        rules = {
            "the originals differ": same([each.to_openai() for each in originals], self.messages),
            "the summary names other messages": newest.message_ids[-len(self.leaving) :]
            == tuple(str(each.id) for each in stands_for if each.seq in self.leaving),
            "the summary has other times": bool(times) and (newest.start_ms, newest.end_ms) == (min(times), max(times)),
            "the summary is not quoted, with its range": quoted["role"] == "user"
            and f"{newest.first_seq} to {newest.last_seq}" in content
            and content.endswith(f"<summary>\n{newest.text}\n</summary>"),
            "the summary is not shorter": newest.tokens < sum(each.tokens for each in stands_for),
            "summary_version is as before": context.summary_version != self.summary_version,
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


def same(found: Any, wanted: Any) -> bool:
    """Whether both are the same JSON text: there 1, 1.0 and true differ, and null and absent. Params have no order."""
    ordered = isinstance(wanted, list)
    return json.dumps(found, sort_keys=not ordered) == json.dumps(wanted, sort_keys=not ordered)

"""What the demo puts in, what it gets back, and what the memory must hold: kept beside it, and compared. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from redismem.context import Context, Receipt, SessionInfo, State
from redismem.messages import Message

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
    covered: list[int] = field(default_factory=list)
    """The last seq of each summary."""
    summary_version: str = ""

    @property
    def first_seq(self) -> int:
        return 1 + max(self.covered, default=0)

    def take(self, turn: Turn) -> None:
        self.messages += turn.messages
        change = dict(turn.change)
        self.state["merge"] = self.state["merge"] | change.pop("merge", {})
        self.state |= change

    def take_drain(self) -> None:
        """All but the recent ones are covered now."""
        self.covered.append(len(self.messages) - self.recent_limit)

    def differences(self, context: Context, info: SessionInfo) -> list[str]:
        """What is not as it must be, in words."""
        count, first = len(self.messages), self.first_seq
        recent = max(first, count - self.recent_limit + 1)
        queue = "overdue" if count - first + 1 > self.threshold else None
        quoted = [summary.to_openai() for summary in context.summaries]
        comparisons = (
            ("the messages for the model", context.to_openai(), quoted + self.messages[first - 1 :]),
            ("pending", [each.seq for each in context.pending], list(range(first, recent))),
            ("recent", [each.seq for each in context.recent], list(range(recent, count + 1))),
            ("total_messages", context.total_messages, count),
            ("the state", _as_change(context.state), self.state),
            ("the window's count", info.window_count, count - first + 1),
            ("the queue", info.queued, queue),
            ("the summaries' ranges", _ranges(context), self._ranges()),
        )
        return [f"{name} differ" for name, found, wanted in comparisons if not same(found, wanted)]

    def _ranges(self) -> list[tuple[int, int]]:
        starts = [1, *(last + 1 for last in self.covered)]
        return list(zip(starts, self.covered, strict=False))

    def summary_differences(self, context: Context, originals: list[Message], keeps: list[str]) -> list[str]:
        """After a drain: what is not as it must be about the newest summary, and about what it stands for."""
        if not context.summaries:
            return ["there is no summary"]
        newest, quoted = context.summaries[-1], context.to_openai()[len(context.summaries) - 1]
        stands_for = [each for each in originals if newest.first_seq <= each.seq <= newest.last_seq]
        times = [each.time_ms for each in stands_for]
        content = str(quoted["content"])
        rules = {
            "the originals differ": same([each.to_openai() for each in originals], self.messages),
            "the summary names other messages": newest.message_ids == tuple(str(each.id) for each in stands_for),
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

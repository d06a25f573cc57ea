"""A model of sessions in plain Python: appends, changes of state, and time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from redismem import Receipt

TIMEOUT_MS = 160_000

"""The timeout plus 20 ticks of 1 s and 2 leases of 30 s."""
HANDOVER_MS = 86_400_000
THRESHOLD = 6
WINDOW_LIMIT = 25


@dataclass
class PlainSession:
    """A session of the model."""

    messages: list[Any] = field(default_factory=list)
    first_seq: int = 1
    total: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    waiting: str | None = None
    appends: list[tuple[str | None, Receipt, list[str]]] = field(default_factory=list)
    queued: bool = False
    active_ms: int = 0
    expires_ms: int = 0


class PlainSessions:
    """The sessions of one shard, and its indexes."""

    def __init__(self) -> None:
        self.live: dict[str, PlainSession] = {}
        self.active: dict[str, int] = {}
        self.overdue: dict[str, int] = {}
        self._texts = itertools.count(1)

    def write(self, name: str, now_ms: int) -> PlainSession:
        """Return the session after a write now; creates it if it is missing."""
        created = name not in self.live
        model = self.live.setdefault(name, PlainSession())
        if created:
            self.overdue.pop(name, None)
            # A new session removes long expired sessions from the indexes.
            long_ago_ms = now_ms - 2 * TIMEOUT_MS - HANDOVER_MS
            for other in [other for other, active_ms in self.active.items() if active_ms <= long_ago_ms]:
                if other not in self.live:
                    del self.active[other]
                    self.overdue.pop(other, None)
        if created or now_ms - model.active_ms >= min(1000, TIMEOUT_MS / 16):
            model.active_ms = self.active[name] = now_ms
            model.expires_ms = now_ms + TIMEOUT_MS
        return model

    def change(self, name: str, model: PlainSession, now_ms: int, merge: dict[str, Any] | None, waiting: Any) -> None:
        model.params |= merge or {}
        if waiting is not ...:
            model.waiting = waiting
        half_full = 2 * len(model.messages) > WINDOW_LIMIT
        if len(model.messages) > THRESHOLD and (not model.queued or half_full):
            model.queued = True
            self.overdue[name] = 0 if half_full else now_ms

    def append(self, name: str, count: int, now_ms: int, id: str | None, **what: Any) -> tuple[list[Any], Receipt]:
        """Append messages to the model. Returns them, and the expected receipt."""
        contents = [f"text {next(self._texts)}" for _ in range(count)]
        created = name not in self.live
        model = self.write(name, now_ms)
        model.messages += contents
        receipt = Receipt(model.total + 1, model.total + count, model.total + count, created, False)
        model.total += count
        model.appends = [*model.appends, (id, receipt, contents)][-16:]
        self.change(name, model, now_ms, what.get("merge"), what.get("waiting", ...))
        return [{"role": "user", "content": content} for content in contents], receipt

    def is_full(self, name: str, count: int) -> bool:
        return name in self.live and len(self.live[name].messages) + count > WINDOW_LIMIT

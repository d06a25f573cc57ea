"""Messages as a provider takes them: every result behind its call, no call without its results but at the very end.

A result that comes too late, or whose call a summary covers, is quoted in a message of the user's; so is a call that
the conversation went on without. Everything else stays the dict that it is. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.formats.tool_calls import (
    ITEM_CALLS,
    ITEM_RESULTS,
    Key,
    Payload,
    ToolCall,
    ToolResult,
    Waiting,
    calls,
    has_calls,
    parts_name,
    quoted_call,
    quoted_result,
    tools_in,
    whole_result,
    without,
)


def provider_view(payloads: list[Payload]) -> list[Payload]:
    """The messages to send; the same list when there is nothing to change in it."""
    if not has_calls(payloads):
        return payloads
    view = _View(_unpaired_items(payloads))
    for at, payload in enumerate(payloads):
        view.take(at, payload)
    return view.finished()


def _unpaired_items(payloads: Sequence[Payload]) -> frozenset[int]:
    """Places of the Responses items without a counterpart. A result may follow its call at any distance there."""
    open_at: dict[Key, int] = {}
    unpaired = set()
    last_other = -1
    for at, payload in enumerate(payloads):
        kind = payload.get("type")
        if kind in ITEM_CALLS:
            (call,) = (call for call in calls(payload) if call.key[0] == "item")
            if call.key in open_at:
                unpaired.add(open_at[call.key])
            open_at[call.key] = at
        elif kind in ITEM_RESULTS:
            result = whole_result(payload)
            if result is None or open_at.pop(result.key, None) is None:
                unpaired.add(at)
        elif kind != "reasoning":
            last_other = at
    # A call at the very end still waits: nothing follows it but other calls and their results.
    end = max(last_other, max(unpaired, default=-1))
    return frozenset(unpaired.union(at for at in open_at.values() if at < end))


class _View:
    """Takes the messages one by one. A group is a message with calls and, right behind it, the results it has so far;
    while it is open, what is quoted goes before it."""

    def __init__(self, unpaired_items: frozenset[int]) -> None:
        self._unpaired_items = unpaired_items
        self._shown: list[Payload] = []
        self._aside: list[Payload] = []
        self._group: list[Payload] = []
        self._open = Waiting()
        self._twins: set[Key] = set()
        self._names: dict[Key, Any] = {}

    def take(self, at: int, payload: Payload) -> None:
        made = list(calls(payload))
        told = tools_in(payload)
        self._names.update((call.key, call.name) for call in made)
        if payload.get("type") in ITEM_CALLS or payload.get("type") in ITEM_RESULTS:
            self._take_item(payload, at in self._unpaired_items)
        elif whole_result(payload) is not None:
            self._take_result(payload, made)
        elif any(isinstance(tool, ToolResult) for _, tool in told):
            self._take_parts(payload, told, made)
        else:
            self._take_other(payload, made)

    def finished(self) -> list[Payload]:
        self._drop_twins()
        return [*self._shown, *self._aside, *self._group]

    def _take_item(self, payload: Payload, is_unpaired: bool) -> None:
        self._close()
        result = whole_result(payload)
        if not is_unpaired:
            self._shown.append(payload)
        elif result is not None:
            self._shown.append(quoted_result(result, self._names.get(result.key)))
        else:
            # A provider refuses the thoughts before a call that is not there.
            while self._shown and self._shown[-1].get("type") == "reasoning":
                self._shown.pop()
            self._shown += [quoted_call(call) for call in calls(payload) if call.key[0] == "item"]

    def _take_result(self, payload: Payload, made: Sequence[ToolCall]) -> None:
        result = whole_result(payload)
        assert result is not None
        if made or not self._answer(result.key):
            self._aside.append(quoted_result(result, self._names.get(result.key, payload.get("name"))))
        else:
            self._group.append(payload)
        self._close_if_answered()

    def _take_parts(
        self, payload: Payload, told: Sequence[tuple[Any, ToolCall | ToolResult | None]], made: Sequence[ToolCall]
    ) -> None:
        """A message with results among its parts: those that come too late are quoted before it."""
        kept, late = [], []
        has_answers = False
        speaks = False
        for part, tool in told:
            if not isinstance(tool, ToolResult):
                speaks = True
                kept.append(part)
            elif made or not self._answer(tool.key):
                name = tool.key[1] if tool.key[0] == "function" else self._names.get(tool.key)
                late.append(quoted_result(tool, name))
            else:
                has_answers = True
                kept.append(part)
        if late:
            payload = payload | {parts_name(payload): kept}
        if has_answers:
            self._aside += late
            self._group.append(payload)
            if speaks:
                self._close()
            self._close_if_answered()
        elif kept:
            self._close()
            self._shown += late
            self._take_other(payload, made)
        else:
            self._aside += late
            self._close_if_answered()

    def _answer(self, key: Key) -> bool:
        """Whether such a call is open; it is not any more, nor in another form if the message has it twice."""
        if self._open.answer(key) is None:
            return False
        for twin in ((form, key[1]) for form in ("chat", "part", "item") if key[0] != "function"):
            if self._open.calls.pop(twin, None) is not None:
                self._twins.add(twin)
        return True

    def _drop_twins(self) -> None:
        if self._twins:
            self._group[0] = without(self._group[0], self._twins) or self._group[0]
            self._twins = set()

    def _take_other(self, payload: Payload, made: Sequence[ToolCall]) -> None:
        self._close()
        if made:
            self._open = Waiting(made)
        self._group.append(payload)
        self._close_if_answered()

    def _close_if_answered(self) -> None:
        if not self._open.calls:
            self._close()

    def _close(self) -> None:
        """The conversation goes on: what is not answered by now is not answered."""
        self._drop_twins()
        if self._open.calls:
            head = without(self._group[0], set(self._open.calls))
            self._group[:1] = [] if head is None else [head]
        self._shown += self._aside
        self._shown += self._group
        self._aside, self._group = [], []
        if self._open.calls:
            self._shown += map(quoted_call, self._open.calls.values())
            self._open = Waiting()

"""Pair tool calls and results as providers require: every result right after its call, open calls only at the end.

A result that is late, or whose call is covered by a summary, is quoted in a user message. So is a call without a result
in mid-conversation. All other messages stay unchanged. No I/O.
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
    drop_calls,
    has_calls,
    parts_name,
    quote_call,
    quote_result,
    tools_in,
    whole_result,
)


def provider_view(payloads: list[Payload]) -> list[Payload]:
    """Return the messages to send; `payloads` itself if nothing has to change."""
    if not has_calls(payloads):
        return payloads
    view = _View(_unpaired_items(payloads))
    for at, payload in enumerate(payloads):
        view.take(at, payload)
    return view.finish()


def _unpaired_items(payloads: Sequence[Payload]) -> frozenset[int]:
    """Return the places of Responses items without a counterpart; results may follow calls at any distance."""
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
    # A call at the end is still open: only other calls and results follow it.
    end = max(last_other, max(unpaired, default=-1))
    return frozenset(unpaired.union(at for at in open_at.values() if at < end))


class _View:
    """The view under construction, message by message.

    A group is a message with calls and the results so far. While it is open, quotes are collected before it.
    """

    def __init__(self, unpaired_items: frozenset[int]) -> None:
        self._unpaired_items = unpaired_items
        self._shown: list[Payload] = []
        self._aside: list[Payload] = []
        self._group: list[Payload] = []
        self._open = Waiting()
        self._twins: set[Key] = set()
        self._names: dict[Key, Any] = {}

    def take(self, at: int, payload: Payload) -> None:
        """Add the message at a place of the conversation."""
        made = list(calls(payload))
        parts = tools_in(payload)
        for call in made:
            self._names[call.key] = call.name
        if payload.get("type") in ITEM_CALLS or payload.get("type") in ITEM_RESULTS:
            self._take_item(payload, at in self._unpaired_items)
        elif whole_result(payload) is not None:
            self._take_result(payload, made)
        elif any(isinstance(tool, ToolResult) for _, tool in parts):
            self._take_parts(payload, parts, made)
        else:
            self._take_other(payload, made)

    def finish(self) -> list[Payload]:
        """Return the messages to send."""
        self._drop_twins()
        return [*self._shown, *self._aside, *self._group]

    def _take_item(self, payload: Payload, is_unpaired: bool) -> None:
        self._close()
        result = whole_result(payload)
        if not is_unpaired:
            self._shown.append(payload)
        elif result is not None:
            self._shown.append(quote_result(result, self._names.get(result.key)))
        else:
            # Providers refuse reasoning whose call is missing.
            while self._shown and self._shown[-1].get("type") == "reasoning":
                self._shown.pop()
            self._shown += [quote_call(call) for call in calls(payload) if call.key[0] == "item"]

    def _take_result(self, payload: Payload, made: Sequence[ToolCall]) -> None:
        result = whole_result(payload)
        assert result is not None
        if made or not self._answer(result.key):
            self._aside.append(quote_result(result, self._names.get(result.key, payload.get("name"))))
        else:
            self._group.append(payload)
        self._close_if_answered()

    def _take_parts(
        self, payload: Payload, parts: Sequence[tuple[Any, ToolCall | ToolResult | None]], made: Sequence[ToolCall]
    ) -> None:
        """Add a message with results among its parts; late results are quoted before it."""
        kept, late = [], []
        has_answers = False
        speaks = False
        for part, tool in parts:
            if not isinstance(tool, ToolResult):
                speaks = True
                kept.append(part)
            elif made or not self._answer(tool.key):
                name = tool.key[1] if tool.key[0] == "function" else self._names.get(tool.key)
                late.append(quote_result(tool, name))
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
        """Close the call that a result answers, also its twins in other formats; False if no such call is open."""
        if self._open.answer(key) is None:
            return False
        if not self._open.calls:
            return True
        for twin in ((form, key[1]) for form in ("chat", "part", "item") if key[0] != "function"):
            if self._open.calls.pop(twin, None) is not None:
                self._twins.add(twin)
        return True

    def _drop_twins(self) -> None:
        if self._twins:
            self._group[0] = drop_calls(self._group[0], self._twins) or self._group[0]
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
        """End the group; calls that are still unanswered are dropped from it and quoted."""
        self._drop_twins()
        if self._open.calls:
            head = drop_calls(self._group[0], set(self._open.calls))
            self._group[:1] = [] if head is None else [head]
        self._shown += self._aside
        self._shown += self._group
        self._aside, self._group = [], []
        if self._open.calls:
            self._shown += map(quote_call, self._open.calls.values())
            self._open = Waiting()

"""Pair tool calls and results as providers require: every result right after its call, open calls only at the end.

A result is quoted in a user message if it is late or a summary covers its call. A call without a result is quoted too,
unless it is at the end. Reasoning without output is left out. Items at the beginning lose their ids if a summary covers
their reasoning. All other messages stay unchanged. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from redismem.formats.elements import Element, Key, ToolCall, ends_of, is_blank
from redismem.formats.forms import Payload
from redismem.formats.reading import drop_calls, is_thought, read_message, without, without_id
from redismem.formats.sections import has_calls, is_item, is_output, may_hold_calls
from redismem.formats.tool_calls import Waiting, quote_call, quote_result
from redismem.formats.tool_order import is_in_order


def provider_view(payloads: list[Payload], pinned_count: int = 0, cut_at: int | None = None) -> list[Payload]:
    """Return the messages to send, or `payloads` itself if nothing has to change.

    Args:
        pinned_count: The number of pinned messages. They come first, and the messages that were around them are
            missing.
        cut_at: The index of the first message behind the ones that a summary or a limit has left out; `None` means that
            none are missing.
    """
    if not has_calls(payloads):
        return payloads
    left = _without_lost_ids(payloads, pinned_count, cut_at)
    if is_in_order(left):
        return [*left]
    view = _View()
    messages = [Read(payload) for payload in left]
    unpaired = _unpaired_items(messages)
    for at, message in enumerate(messages):
        view.take(message, at in unpaired)
    return _without_bare_thoughts(view.finish())


def _without_bare_thoughts(payloads: list[Payload]) -> list[Payload]:
    """Leave out reasoning without output, because providers refuse it."""
    left: list[Payload] = []
    is_followed = False
    for payload in reversed(payloads):
        if may_hold_calls(payload) and is_thought(payload):
            if not is_followed:
                continue
        else:
            is_followed = is_output(payload)
        left.append(payload)
    left.reverse()
    return left


def _without_lost_ids(payloads: list[Payload], pinned_count: int, cut_at: int | None) -> list[Payload]:
    """Return the messages. An item without its reasoning loses its id, or is quoted if OpenAI requires the id.

    OpenAI refuses an item with an id if the reasoning that led to the item is missing.
    """
    pinned, window = payloads[:pinned_count], [] if cut_at is None else payloads[cut_at:]
    lost = {*_lost_ids(pinned, 0, ends_at_other=False), *_lost_ids(window, cut_at or 0, ends_at_other=True)}
    if not lost:
        return payloads
    left: list[Payload] = []
    for at, payload in enumerate(payloads):
        sendable = without_id(payload) if at in lost else payload
        left += _quote_item(payload) if sendable is None else [sendable]
    return left


def _lost_ids(payloads: Iterable[Payload], first: int, *, ends_at_other: bool) -> Iterator[int]:
    """Yield the indices of items with an id before the first reasoning.

    With `ends_at_other`, stop at the first message that no model produced.
    """
    for at, payload in enumerate(payloads, first):
        if not is_output(payload):
            if ends_at_other:
                return
        elif may_hold_calls(payload) and is_thought(payload):
            return
        elif "id" in payload:
            yield at


def _quote_item(item: Payload) -> Iterator[Payload]:
    for element in read_message(item):
        if element.call is not None:
            yield quote_call(element.call, is_answered=True)
        if element.kind == "both" and element.result is not None and element.result.content is not None:
            yield quote_result(element.result, element.call and element.call.name)


class Read:
    """A message, its elements and its open ends."""

    __slots__ = ("elements", "ends", "payload")

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.elements: list[Element] = read_message(payload) if may_hold_calls(payload) else []
        self.ends = ends_of(self.elements)


def _unpaired_items(messages: Sequence[Read]) -> frozenset[int]:
    """Return the indices of OpenAI Responses API items that are a call without a result or a result without a call.

    A result may come any number of items after its call.
    """
    open_at: dict[Key, int] = {}
    keys_at: dict[int, list[Key]] = {}
    unpaired: set[int] = set()
    last_other = -1
    for at, message in enumerate(messages):
        if not is_item(message.payload):
            last_other = at
            continue
        for call in message.ends.made:
            keys_at[at] = [call.key] if call.by_name is None else [call.key, call.by_name]
            unpaired.update(open_at[key] for key in keys_at[at] if key in open_at)
            open_at.update(dict.fromkeys(keys_at[at], at))
        for result in message.ends.answered:
            call_at = open_at.get(result.key)
            for key in [] if call_at is None else keys_at[call_at]:
                open_at.pop(key, None)
            if call_at is None:
                unpaired.add(at)
    # A call is at the end, and still open, if only other calls and results follow it.
    end = max(last_other, max(unpaired, default=-1))
    return frozenset(unpaired.union(at for at in open_at.values() if at < end))


class _View:
    """The view under construction, message by message.

    A group is a message with tool calls, followed by the results that have arrived. It is open until every call has its
    result. Until then, late results, which are quoted as text, go before the group.
    """

    def __init__(self) -> None:
        self._shown: list[Payload] = []
        self._aside: list[Payload] = []
        self._group: list[Payload] = []
        self._quotes: list[Payload] = []
        """Quotes of items of the current response.

        They go behind it, because nothing may separate its reasoning and output.
        """
        self._waiting = Waiting()
        self._twins: set[Key] = set()
        self._made: dict[Key, ToolCall] = {}
        self._names: dict[Key, Any] = {}

    def take(self, message: Read, is_unpaired_item: bool) -> None:
        """Add the next message of the conversation."""
        made, answered = message.ends
        for call in made:
            self._names[call.key] = call.name
        if self._quotes and not is_output(message.payload):
            self._shown += self._quotes
            self._quotes = []
        if is_item(message.payload):
            self._close()
            self._take_item(message, is_unpaired_item)
        elif answered:
            self._take_results(message)
        else:
            self._take_other(message.payload, made)

    def finish(self) -> list[Payload]:
        """Return the messages to send."""
        self._drop_twins()
        return [*self._shown, *self._quotes, *self._aside, *self._group]

    def _take_item(self, message: Read, is_unpaired: bool) -> None:
        if not is_unpaired:
            self._shown.append(message.payload)
            return
        self._shown += [quote_result(result, self._names.get(result.key)) for result in message.ends.answered]
        self._quotes += map(quote_call, message.ends.made)

    def _take_results(self, message: Read) -> None:
        """Add a message with results. Late results are quoted before the open group."""
        made = message.ends.made
        late: list[Payload] = []
        dropped: list[Element] = []
        answered = {id(result) for result in message.ends.answered}
        for element in message.elements:
            result = element.result
            if result is None or id(result) not in answered:
                continue
            if (made and not element.form.inside) or not self._answer(result.key):
                named = result.key[1] if result.key[0] == "function" else self._names.get(result.key, result.name)
                late.append(quote_result(result, named))
                dropped.append(element)
        left = without(message.payload, dropped) if dropped else message.payload
        if left is None:
            self._aside += late
        elif len(dropped) == len(answered):
            self._close()
            self._shown += late
            self._take_other(left, made)
            return
        else:
            self._aside += late
            self._group.append(left)
            if made:
                self._reopen(left, made)
            elif any(element.kind != "result" and not is_blank(element) for element in message.elements):
                self._close()
        self._close_if_answered()

    def _reopen(self, payload: Payload, made: Sequence[ToolCall]) -> None:
        """End the group with a message that makes calls too. Its results are of tools that the provider runs itself."""
        if self._waiting.open:  # the group ends with quotes, which no result may follow
            self._group[-1:] = filter(None, [drop_calls(payload, {call.key for call in made})])
            self._aside += map(quote_call, made)
            return
        self._close()
        self._group = [self._shown.pop()]
        self._wait_for(made)

    def _wait_for(self, made: Sequence[ToolCall]) -> None:
        self._made = {call.key: call for call in made}
        self._waiting = Waiting()
        self._waiting.add({call.key: call.by_name for call in made})

    def _answer(self, key: Key) -> bool:
        """Close the call that a result answers, and copies of the call in other formats.

        Return False if no such call is open.
        """
        if self._waiting.answer(key) is None:
            return False
        if not self._waiting.open:
            return True
        for twin in ((form, key[1]) for form in ("chat", "part", "item") if key[0] != "function"):
            if twin in self._waiting.open:
                del self._waiting.open[twin]
                self._twins.add(twin)
        return True

    def _drop_twins(self) -> None:
        if self._twins:
            self._group[0] = drop_calls(self._group[0], self._twins) or self._group[0]
            self._twins = set()

    def _take_other(self, payload: Payload, made: Sequence[ToolCall]) -> None:
        self._close()
        if made:
            self._wait_for(made)
        self._group.append(payload)
        self._close_if_answered()

    def _close_if_answered(self) -> None:
        if not self._waiting.open:
            self._close()

    def _close(self) -> None:
        """End the group. Calls that are still unanswered are removed from it and quoted."""
        self._drop_twins()
        if self._waiting.open:
            head = drop_calls(self._group[0], set(self._waiting.open))
            self._group[:1] = [] if head is None else [head]
        self._shown += self._aside
        self._shown += self._group
        self._aside, self._group = [], []
        if self._waiting.open:
            self._shown += [quote_call(self._made[key]) for key in self._waiting.open]
            self._waiting = Waiting()

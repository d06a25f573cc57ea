"""Where a list of messages may be cut so that no tool result loses its call, nor a call its result. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from redismem.messages import Message


def _parts(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = payload.get("content")
    if isinstance(content, list):
        yield from (part for part in content if isinstance(part, dict))


def _calls(payload: dict[str, Any]) -> Iterator[object]:
    """Ids of the tool calls a message makes: OpenAI chat and Responses, Anthropic parts, old functions by name."""
    tool_calls = payload.get("tool_calls")
    if isinstance(tool_calls, list):
        yield from (call.get("id") for call in tool_calls if isinstance(call, dict))
    function_call = payload.get("function_call")
    if isinstance(function_call, dict):
        yield f"function {function_call.get('name')!r}"
    if payload.get("type") in ("function_call", "custom_tool_call"):
        yield payload.get("call_id")
    yield from (part.get("id") for part in _parts(payload) if part.get("type") == "tool_use")


def _results(payload: dict[str, Any]) -> Iterator[object]:
    """Ids of the tool calls a message answers."""
    if payload.get("tool_call_id") is not None:
        yield payload["tool_call_id"]
    elif payload.get("role") == "function":
        yield f"function {payload.get('name')!r}"
    if payload.get("type") in ("function_call_output", "custom_tool_call_output"):
        yield payload.get("call_id")
    yield from (part.get("tool_use_id") for part in _parts(payload) if part.get("type") == "tool_result")


def _key(call_id: object) -> object:
    return call_id if isinstance(call_id, str | int) else repr(call_id)


def links(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """(call, result) of every tool result, as places in the list; the call is -1 where it is not in the list.

    A result belongs to the nearest call before it with its id: some models use an id again.
    """
    made: dict[object, int] = {}
    found = []
    for at, message in enumerate(messages):
        payload = message.to_openai()
        found += [(made.get(_key(call_id), -1), at) for call_id in _results(payload)]
        made.update((_key(call_id), at) for call_id in _calls(payload))
    return found


def cut_before(messages: Sequence[Message], wanted: int) -> int:
    """The largest place up to `wanted` at which a cut parts no result from its call."""
    pairs = [pair for pair in links(messages) if pair[0] >= 0]
    place = wanted
    while parted := [call for call, result in pairs if call < place <= result]:
        place = min(parted)
    return place


def cut_after(messages: Sequence[Message], wanted: int) -> int:
    """The smallest place from `wanted` on from where every result has its call; a result without any call is passed."""
    pairs = links(messages)
    place = wanted
    while parted := [result for call, result in pairs if call < place <= result]:
        place = max(parted) + 1
    return place


def newest_within(messages: Sequence[Message], max_tokens: int) -> int:
    """The place from where on the messages have `max_tokens` at most."""
    left = max_tokens
    for place in range(len(messages), 0, -1):
        left -= messages[place - 1].tokens
        if left < 0:
            return place
    return 0


def open_calls(part: Sequence[Message], messages: Sequence[Message]) -> list[int]:
    """Places in `part` of tool calls that no message answers. `part` begins where `messages` does."""
    answered: dict[int, int] = {}
    for call, _ in links(messages):
        answered[call] = answered.get(call, 0) + 1
    return [
        at
        for at, message in enumerate(part)
        if len({_key(call_id) for call_id in _calls(message.to_openai())}) > answered.get(at, 0)
    ]

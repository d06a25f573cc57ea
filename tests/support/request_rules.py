"""The published rules on tool calls and reasoning in a request, checked without the package's table of forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.agent_loops import HOSTED, PAIRS, Payload

_OUTPUTS = (*PAIRS, *HOSTED, "reasoning")
_RESULTS = {result: call for call, result in PAIRS.items()}


def faults(form: str, came_of: dict[str, str], view: list[Payload]) -> list[str]:
    """Return the reasons for which a provider refuses a view in the format of an agent loop."""
    return list(_item_faults(came_of, view) if form == "items" else _message_faults(view))


def _is_output(item: Payload) -> bool:
    return item.get("type") in _OUTPUTS or item.get("role") == "assistant"


def _item_faults(came_of: dict[str, str], view: list[Payload]) -> Iterator[str]:
    """OpenAI Responses: each item with its reasoning, no reasoning alone, each result with its call."""
    reasoning = ""
    waiting: dict[str, int] = {}
    last_input = -1
    for at, item in enumerate(view):
        kind = item.get("type")
        if not _is_output(item):
            reasoning = ""
            last_input = last_input if kind in _RESULTS else at
        if kind == "reasoning":
            reasoning = item["id"]
            following = next((item for item in view[at + 1 :] if item.get("type") != "reasoning"), {})
            if not _is_output(following):
                yield f"{at}: reasoning with nothing behind it"
        needed = came_of.get(item.get("id", ""), "") if _is_output(item) else ""
        if needed and needed != reasoning:
            yield f"{at}: {kind} without its reasoning {needed}"
        if kind in HOSTED and "id" not in item:
            yield f"{at}: {kind} without its id"
        if kind in PAIRS:
            waiting[_call_id(item)] = at
        elif kind in _RESULTS:
            answered = str(item.get("call_id", item.get("approval_request_id", item.get("id"))))
            if waiting.pop(answered, None) is None:
                yield f"{at}: the result {answered} without its call"
    yield from (f"{at}: the call {id} without a result" for id, at in waiting.items() if at < last_input)


def _call_id(item: Payload) -> str:
    in_id = item["type"] in ("local_shell_call", "mcp_approval_request")
    return str(item.get("id") if in_id else item["call_id"])


def _message_faults(view: list[Payload]) -> Iterator[str]:
    """Formats whose results are in the messages right after the calls."""
    waiting: list[str] = []
    for at, message in enumerate(view):
        called, answered = _ends(message)
        for id in answered:
            if id not in waiting:
                yield f"{at}: the result {id} without its call"
            else:
                waiting.remove(id)
        if waiting and not answered:
            yield f"{at}: {waiting} without results"
            waiting = []
        waiting += called


def _ends(message: Payload) -> tuple[list[str], list[str]]:
    """The ids of the calls that wait for a result, and those of the results; names where a format has no ids."""
    called: list[str] = []
    answered: list[str] = []
    body = message.get("data", message)
    extra = body.get("additional_kwargs") or {}
    called += [call["id"] for source in (body, extra) for call in source.get("tool_calls") or []]
    called += [message["function_call"]["name"]] if "function_call" in message else []
    answered += [source["tool_call_id"] for source in (body, extra) if source.get("tool_call_id")]
    answered += [message["name"]] if message.get("role") == "function" else []
    for part in _parts(body):
        kind = part.get("type", part.get("part_kind", part.get("block_type")))
        ids = [str(part[name]) for name in ("id", "toolCallId", "call_id", "tool_call_id") if part.get(name)]
        if kind in ("tool_use", "server_tool_use", "tool-call", "function_call", "tool_call", "builtin-tool-call"):
            called += [id for id in ids if id not in called]
        elif kind in ("tool_result", "web_search_tool_result"):
            _answer(called, answered, part["tool_use_id"])
        elif kind in ("tool-result", "function_result", "tool-return", "retry-prompt", "builtin-tool-return"):
            _answer(called, answered, *ids)
        elif kind is None:
            for name, own in part.items():
                called += [own["name"]] if name in ("functionCall", "function_call") else []
                answered += [own["name"]] if name in ("functionResponse", "function_response") else []
                called += [own["toolUseId"]] if name == "toolUse" else []
                answered += [own["toolUseId"]] if name == "toolResult" else []
    return called, answered


def _parts(body: Payload) -> Iterator[Payload]:
    for name in ("content", "parts", "contents", "blocks"):
        if isinstance(body.get(name), list):
            yield from body[name]


def _answer(called: list[str], answered: list[str], *ids: Any) -> None:
    """A result of a provider's own tool is beside its call."""
    for id in ids:
        if id in called:
            called.remove(id)
        else:
            answered.append(id)

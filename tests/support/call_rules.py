"""What a provider says of the tool calls in what it is sent: a second opinion on the forms."""

from __future__ import annotations

from typing import Any

Payload = dict[str, Any]
_GEMINI_CALLS = ("functionCall", "function_call")


def ids_of(payload: Payload) -> tuple[list[str], list[str]]:
    """(called, answered), by a second opinion on the forms."""
    kind = str(payload.get("type", ""))
    if kind.endswith("_call"):
        return [payload["call_id"]], []
    if kind.endswith("_output"):
        return [], [payload["call_id"]]
    called = [each["id"] for each in payload.get("tool_calls") or []]
    called += [payload["function_call"]["name"]] if "function_call" in payload else []
    answered = [payload["tool_call_id"]] if "tool_call_id" in payload else []
    answered += [payload["name"]] if payload.get("role") == "function" else []
    for part in parts_of(payload):
        called += [part["id"]] if part.get("type") == "tool_use" else []
        answered += [part["tool_use_id"]] if part.get("type") == "tool_result" else []
        called += [each.get("id", each["name"]) for name, each in part.items() if name in _GEMINI_CALLS]
        answered += [each.get("id", each["name"]) for name, each in part.items() if name == "functionResponse"]
    return called, answered


def parts_of(payload: Payload) -> list[Payload]:
    found = payload.get("parts", payload.get("content"))
    return found if isinstance(found, list) else []


def complaints(payloads: list[Payload], anywhere: bool) -> list[str]:
    """What a provider would say. `anywhere`: a result may follow at any distance, as in Responses."""
    found = []
    waiting: set[str] = set()
    for at, payload in enumerate(payloads):
        called, answered = ids_of(payload)
        for id in answered:
            if id not in waiting:
                found.append(f"{at}: {id} is not waited for")
            waiting.discard(id)
        speaks = not answered or any("text" in part for part in parts_of(payload))
        if waiting and not anywhere and speaks:
            found.append(f"{at}: without {sorted(waiting)}")
        found += [f"{at}: {id} twice" for id in called if id in waiting]
        waiting = (waiting if anywhere else waiting if answered and not speaks else set()) | set(called)
    while payloads and (any(ids_of(payloads[-1]))):
        waiting -= set(ids_of(payloads[-1])[0])
        payloads = payloads[:-1]
    return found + ([f"{sorted(waiting)} never"] if anywhere and waiting else [])

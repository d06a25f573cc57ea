"""Messages of frameworks as those of OpenAI's chat completions, each with its time. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from redismem.formats.openai_parts import image_url, join_texts, json_arguments, text
from redismem.formats.parts import Call, Media, Part, Result, View, parse_message, placeholder
from redismem.messages.message import Message, moment
from redismem.record.transcripts.transcript import Turned


def to_messages(turned: Iterable[Turned]) -> list[Message]:
    """Return messages of a framework as messages with roles, texts and tool calls, numbered from 1.

    One of the framework's may become several, such as the results of several calls.
    """
    view, messages = View(), list[Message]()
    for payload, time_ms in turned:
        for written in _write(payload, view):
            at = None if time_ms is None else moment(time_ms)
            message = Message(**written, timestamp=at)
            message.seq = len(messages) + 1
            messages.append(message)
    return messages


def _write(payload: dict[str, Any], view: View) -> Iterator[dict[str, Any]]:
    for role, parts in parse_message(payload, view):
        said: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for part in parts:
            match part:
                case Call(call):
                    function = {"name": str(call.name or ""), "arguments": json_arguments(call.arguments)}
                    calls.append({"id": call.key[1], "type": "function", "function": function})
                case Result(result, inner):
                    answer = {"role": "tool", "tool_call_id": result.key[1], "content": _content(inner, "\n") or ""}
                    name = view.names.get(result.key, result.name)
                    results.append(answer | ({"name": name} if isinstance(name, str) else {}))
                case _:
                    said.append(_part(part))
        if said or calls:
            yield {"role": role, "content": _joined(said)} | ({"tool_calls": calls} if calls else {})
        yield from results


def _part(part: Part) -> dict[str, Any]:
    url = image_url(part) if isinstance(part, Media) else None
    return text(placeholder(part)) if url is None else {"type": "image_url", "image_url": {"url": url}}


def _content(parts: Sequence[Part], between: str) -> str | list[dict[str, Any]] | None:
    return _joined([_part(part) for part in parts], between)


def _joined(parts: list[dict[str, Any]], between: str = "\n\n") -> str | list[dict[str, Any]] | None:
    """Return the parts as one text if there is nothing else; `None` without parts."""
    joined = join_texts(parts, between)
    return parts if joined is None else joined or None


def load_json(encoded: bytes | str) -> Any:
    """Return the value of JSON text; bytes that Strands wrote are their base64.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(encoded, object_hook=_as_base64)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _as_base64(pairs: dict[str, Any]) -> Any:
    return pairs.get("data") if pairs.get("__bytes_encoded__") is True else pairs


def escape(name: str) -> str:
    """Return a framework's name as the adapters write it in the id of a record, behind a prefix and a colon."""
    return name.replace("%", "%25").replace(":", "%3A")


def unescape(record_id: str) -> str:
    """Return the framework's name in the id of a record."""
    return record_id.rpartition(":")[2].replace("%3A", ":").replace("%25", "%")

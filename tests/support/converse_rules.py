"""Checks of a request to Bedrock's Converse API: the shapes of its service model, and what its models refuse.

`converse_shapes.json` has the shapes of a message and a system text, taken from botocore's `bedrock-runtime`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

Payload = dict[str, Any]
_TYPES: dict[str, Any] = {
    "structure": dict,
    "list": list,
    "map": dict,
    "string": str,
    "blob": bytes,
    "integer": int,
    "boolean": bool,
    "double": float,
    "float": float,
}


@cache
def _shapes() -> dict[str, Payload]:
    shapes: dict[str, Payload] = json.loads(Path(__file__).with_name("converse_shapes.json").read_text())
    return shapes


def check_converse(context: Any) -> None:
    """Check a context.

    Raises:
        AssertionError: It does not fit the shapes, or it breaks a rule.
    """
    assert list(shape_faults("Messages", context["messages"])) == []
    assert list(shape_faults("SystemContentBlocks", context.get("system", []))) == []
    assert list(_faults(context["messages"])) == []


def shape_faults(name: str, value: Any, path: str = "") -> Iterator[str]:
    """Yield the places of a value that do not fit a shape."""
    shape = _shapes()[name]
    if shape.get("document"):
        return
    if not isinstance(value, _TYPES[shape["type"]]):
        yield f"{path}: {type(value).__name__} for {name}"
        return
    is_short = hasattr(value, "__len__") and not shape.get("min", 0) <= len(value) <= shape.get("max", 10**9)
    is_odd = "pattern" in shape and not re.fullmatch(shape["pattern"], value)
    if is_short or is_odd or value not in shape.get("enum", [value]):
        yield f"{path}: {value} for {name}"
    if shape["type"] == "list":
        for at, item in enumerate(value):
            yield from shape_faults(shape["member"], item, f"{path}[{at}]")
    if shape["type"] == "structure":
        yield from _member_faults(shape, value, f"{path} {name}")


def _member_faults(shape: Payload, value: Payload, path: str) -> Iterator[str]:
    members = shape["members"]
    if value.keys() - members.keys() or set(shape.get("required", ())) - value.keys():
        yield f"{path}: {sorted(value)}"
    if shape.get("union") and len(value) != 1:
        yield f"{path}: {sorted(value)} for a union"
    for key in value.keys() & members.keys():
        yield from shape_faults(members[key], value[key], f"{path}.{key}")


def _faults(messages: list[Payload]) -> Iterator[str]:
    if [message["role"] for message in messages] != (["user", "assistant"] * len(messages))[: len(messages)]:
        yield "the roles do not alternate from the user on"
    asked: set[str] = set()
    documents: list[str] = []
    for at, message in enumerate(messages):
        blocks = message["content"]
        answers = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        calls = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        texts = [block["text"] for block in blocks if "text" in block]
        if not blocks or not all(text.strip() for text in texts):
            yield f"{at}: empty"
        if len(set(answers)) < len(answers) or not set(answers) <= asked:
            yield f"{at}: {answers} answer {asked}"
        if asked != set(answers) and (at + 1 < len(messages) or len(blocks) > len(answers)):
            yield f"{at}: of {asked} only {answers} are answered"
        if len(set(calls)) < len(calls) or (calls and message["role"] == "user"):
            yield f"{at}: calls of {calls}"
        asked = set(calls)
        own = [block["document"]["name"] for block in blocks if "document" in block]
        if (own and not texts) or not all(re.fullmatch(r"[A-Za-z0-9()\[\] -]+", name) for name in own):
            yield f"{at}: documents {own}"
        documents += own
        if message["role"] == "assistant" and any(block.keys() & {"image", "document", "video"} for block in blocks):
            yield f"{at}: media of the assistant"
    if len(set(documents)) < len(documents):
        yield f"documents {documents}"

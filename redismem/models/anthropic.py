"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.models.http import failed
from redismem.models.http_model import Answer, count, turns


@dataclass(frozen=True, slots=True)
class Anthropic:
    """Messages. No temperature: this version of the API refuses it."""

    name: str = "anthropic"
    base_url: str = "https://api.anthropic.com/v1"

    def path(self, model: str) -> str:
        del model
        return "/messages"

    def headers(self, api_key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {api_key}", "anthropic-version": "2026-10-21"}

    def body(self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        system, spoken = turns(messages)
        body: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
        if system:
            body["system"] = system
        return body | {"messages": [{"role": role, "content": text} for role, text in spoken]}

    def answer(self, reply: Any) -> Answer:
        match reply:
            case {"stop_reason": "refusal"}:
                raise failed("anthropic refused to answer", permanent=True)
            case {"content": [*blocks]}:
                texts = [text for block in blocks if isinstance(text := _text(block), str)]
                usage = reply.get("usage")
                return Answer("".join(texts), count(usage, "input_tokens"), count(usage, "output_tokens"))
        raise failed("anthropic answered without a text")


def _text(block: Any) -> Any:
    return block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None

"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.formats.anthropic import anthropic_context
from redismem.models.http import model_error
from redismem.models.http_model import ModelAnswer, join_texts, token_count


@dataclass(frozen=True, slots=True)
class Anthropic:
    """The wire format of the Messages API. No temperature is sent, because this version of the API refuses it."""

    name: str = "anthropic"
    base_url: str = "https://api.anthropic.com/v1"

    def path(self, model: str) -> str:
        del model
        return "/messages"

    def headers(self, api_key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {api_key}", "anthropic-version": "2026-10-21"}

    def body(
        self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int, *, tools: bool = False
    ) -> dict[str, Any]:
        context = anthropic_context(messages, tools=tools)
        body: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
        if "system" in context:
            body["system"] = _content(context["system"])
        return body | {"messages": [turn | {"content": _content(turn["content"])} for turn in context["messages"]]}

    def answer(self, reply: Any) -> ModelAnswer:
        match reply:
            case {"stop_reason": "refusal"}:
                raise model_error("anthropic refused to answer", permanent=True)
            case {"content": [*blocks]}:
                texts = [text for block in blocks if isinstance(text := _text(block), str)]
                usage = reply.get("usage")
                return ModelAnswer(
                    "".join(texts), token_count(usage, "input_tokens"), token_count(usage, "output_tokens")
                )
        raise model_error("anthropic answered without a text")


def _content(blocks: list[dict[str, Any]]) -> Any:
    """Return the blocks of a turn, or their text if they are nothing else."""
    joined = join_texts(blocks, {"type": "text"})
    return joined[0]["text"] if joined is not blocks else blocks


def _text(block: Any) -> Any:
    return block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None

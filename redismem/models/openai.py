"""OpenAI and the many servers that speak its chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.models.http import failed
from redismem.models.http_model import Answer, count


@dataclass(frozen=True, slots=True)
class OpenAI:
    """Chat completions. `max_tokens_field`: how the server calls the limit of the answer.

    `key_header`: where Azure's deployments, whose addresses end in `?api-version=…`, look for a key.
    """

    max_tokens_field: str = "max_completion_tokens"
    name: str = "openai"
    base_url: str = "https://api.openai.com/v1"
    key_header: str | None = None

    def path(self, model: str) -> str:
        del model
        return "/chat/completions"

    def headers(self, api_key: str) -> dict[str, str]:
        # Three parts with dots between: a token of Entra, which is let in as everywhere else.
        if self.key_header is not None and api_key.count(".") != 2:
            return {self.key_header: api_key}
        return {"authorization": f"Bearer {api_key}"}

    def body(self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        return {"model": model, "messages": list(messages), self.max_tokens_field: max_tokens}

    def answer(self, reply: Any) -> Answer:
        match reply:
            case {"choices": [{"finish_reason": "content_filter"}, *_]}:
                raise failed("openai filtered the answer", permanent=True)
            case {"choices": [{"message": {"content": str(text)}}, *_]}:
                usage = reply.get("usage")
                return Answer(text, count(usage, "prompt_tokens"), count(usage, "completion_tokens"))
        raise failed("openai answered without a text")


def key_header_for(base_url: str | None) -> str | None:
    """Azure's own header for keys, if the address is one of Azure's deployments."""
    return "api-key" if "api-version=" in (base_url or "").partition("?")[2] else None

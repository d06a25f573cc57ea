"""OpenAI's chat completions API, which many servers implement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.models.http import model_error
from redismem.models.http_model import ModelAnswer, token_count


@dataclass(frozen=True, slots=True)
class OpenAI:
    """The wire format of chat completions. `max_tokens_field` is the name of the field that limits the answer.

    `key_header` is the header for keys of Azure deployments, whose URLs end in `?api-version=…`.
    """

    max_tokens_field: str = "max_completion_tokens"
    name: str = "openai"
    base_url: str = "https://api.openai.com/v1"
    key_header: str | None = None

    def path(self, model: str) -> str:
        del model
        return "/chat/completions"

    def headers(self, api_key: str) -> dict[str, str]:
        # Three parts separated by dots are an Entra token, which every deployment accepts as a bearer token.
        if self.key_header is not None and api_key.count(".") != 2:
            return {self.key_header: api_key}
        return {"authorization": f"Bearer {api_key}"}

    def body(self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        return {"model": model, "messages": list(messages), self.max_tokens_field: max_tokens}

    def answer(self, reply: Any) -> ModelAnswer:
        match reply:
            case {"choices": [{"finish_reason": "content_filter"}, *_]}:
                raise model_error("openai filtered the answer", permanent=True)
            case {"choices": [{"message": {"content": str(text)}}, *_]}:
                usage = reply.get("usage")
                return ModelAnswer(text, token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens"))
        raise model_error("openai answered without a text")


def key_header_for(base_url: str | None) -> str | None:
    """Return Azure's header for keys if the URL is an Azure deployment, else None."""
    return "api-key" if "api-version=" in (base_url or "").partition("?")[2] else None

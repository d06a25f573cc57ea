"""Google's Gemini, through generateContent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from redismem.formats.gemini import gemini_context
from redismem.models.http import model_error
from redismem.models.http_model import ModelAnswer, join_texts, token_count

# The answer is complete or reached its limit. Every other reason is a refusal.
_ENDED = (None, "STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED")


@dataclass(frozen=True, slots=True)
class Gemini:
    """The wire format of generateContent. The key is sent in a header, because URLs end up in logs."""

    name: str = "gemini"
    base_url: str = "https://generativelanguage.googleapis.com/v1"

    def path(self, model: str) -> str:
        return f"/models/{quote(model, safe='')}:generateContent"

    def headers(self, api_key: str) -> dict[str, str]:
        return {"x-goog-api-key": api_key}

    def body(
        self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int, *, tools: bool = False
    ) -> dict[str, Any]:
        del model
        context = gemini_context(messages, tools=tools)
        contents = [turn | {"parts": join_texts(turn["parts"], {})} for turn in context["contents"]]
        body: dict[str, Any] = {"contents": contents}
        if "system_instruction" in context:
            body["systemInstruction"] = {"parts": join_texts(context["system_instruction"]["parts"], {})}
        return body | {"generationConfig": {"maxOutputTokens": max_tokens}}

    def answer(self, reply: Any) -> ModelAnswer:
        match reply:
            case {"candidates": [{**candidate}, *_]}:
                if candidate.get("finishReason") not in _ENDED:
                    raise model_error("gemini refused to answer", permanent=True)
                usage = reply.get("usageMetadata")
                spent = token_count(usage, "promptTokenCount"), token_count(usage, "candidatesTokenCount")
                return ModelAnswer("".join(_texts(candidate)), *spent)
            case {"promptFeedback": {"blockReason": str()}}:
                raise model_error("gemini blocked the prompt", permanent=True)
        raise model_error("gemini answered without a text")


def _texts(candidate: Mapping[object, Any]) -> list[str]:
    match candidate:
        case {"content": {"parts": [*parts]}}:
            shown = [part for part in parts if isinstance(part, dict) and part.get("thought") is not True]
            return [part["text"] for part in shown if isinstance(part.get("text"), str)]
    return []

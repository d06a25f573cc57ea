"""How each provider streams an answer: what is asked, and what each event says. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from redismem.models.anthropic import Anthropic
from redismem.models.gemini import Gemini
from redismem.models.http import failed
from redismem.models.openai import OpenAI


class Piece(NamedTuple):
    """What one event adds to the answer. `is_end`: the provider says that this is all; `is_cut`: that more was to come,
    but as many tokens were spent as were asked for.
    """

    text: str
    is_end: bool = False
    is_cut: bool = False


NOTHING = Piece("")


class StreamWire(Protocol):
    """A provider's own way to stream."""

    def stream_path(self, model: str) -> str:
        """Where to ask."""

    def stream_body(self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        """What to ask."""

    def piece(self, event: Any) -> Piece:
        """What an event adds. Raises ModelFailed."""


class OpenAIStream(OpenAI):
    """Chat completions, a chunk an event."""

    def stream_path(self, model: str) -> str:
        return self.path(model)

    def stream_body(self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        return self.body(model, messages, max_tokens) | {"stream": True}

    def piece(self, event: Any) -> Piece:
        match event:
            case {"choices": [{"finish_reason": "content_filter"}, *_]}:
                raise failed("openai filtered the answer", permanent=True)
            case {"choices": [{"delta": {"content": str(text)}, **choice}, *_]}:
                reason = choice.get("finish_reason")
                return Piece(text, reason is not None, reason == "length")
            case {"choices": [{"finish_reason": str(reason)}, *_]}:
                return Piece("", True, reason == "length")
            case {"error": _}:
                raise failed("openai broke off with an error")
        return NOTHING


class AnthropicStream(Anthropic):
    """Messages, with an event for each thing that happens."""

    def stream_path(self, model: str) -> str:
        return self.path(model)

    def stream_body(self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        return self.body(model, messages, max_tokens) | {"stream": True}

    def piece(self, event: Any) -> Piece:
        match event:
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                return Piece(text)
            case {"type": "message_delta", "delta": {"stop_reason": "refusal"}}:
                raise failed("anthropic refused to answer", permanent=True)
            case {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}:
                return Piece("", True, True)
            case {"type": "message_stop"}:
                return Piece("", True)
            case {"type": "error"}:
                raise failed("anthropic broke off with an error")
        return NOTHING


class GeminiStream(Gemini):
    """streamGenerateContent: each event is an answer of its own."""

    def stream_path(self, model: str) -> str:
        return self.path(model).replace(":generateContent", ":streamGenerateContent?alt=sse")

    def stream_body(self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        return self.body(model, messages, max_tokens)

    def piece(self, event: Any) -> Piece:
        match event:
            case {"error": _}:
                raise failed("gemini broke off with an error")
            case {"candidates": [{**candidate}, *_]}:
                # The last one may say why it ended and hold no text.
                reason = candidate.get("finishReason")
                return Piece(self.answer(event).text, isinstance(reason, str), reason == "MAX_TOKENS")
            case {"promptFeedback": {"blockReason": str()}}:
                raise failed("gemini blocked the prompt", permanent=True)
        return NOTHING

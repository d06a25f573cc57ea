"""Each provider's streaming format: its requests and events. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from redismem.models.anthropic import Anthropic
from redismem.models.gemini import Gemini
from redismem.models.http import model_error
from redismem.models.openai import OpenAI
from redismem.models.tool_calls import (
    CallPart,
    Tools,
    anthropic_part,
    anthropic_tools,
    gemini_parts,
    gemini_tools,
    openai_parts,
)


class Piece(NamedTuple):
    """The text, and the parts of tool calls, that one event adds to the answer.

    `is_end` means that the answer is complete, `is_cut` that it stopped at the token limit.
    """

    text: str
    is_end: bool = False
    is_cut: bool = False
    calls: tuple[CallPart, ...] = ()


NOTHING = Piece("")


class StreamWire(Protocol):
    """A provider's streaming format."""

    def stream_path(self, model: str) -> str:
        """Return the path of the request, after the base URL."""

    def stream_body(
        self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int, tools: Tools = ()
    ) -> dict[str, Any]:
        """Return the body of the request."""

    def piece(self, event: Any) -> Piece:
        """Return the piece that an event adds to the answer. Raises ModelFailed."""


class OpenAIStream(OpenAI):
    """Chat completions, with one chunk per event."""

    def stream_path(self, model: str) -> str:
        return self.path(model)

    def stream_body(
        self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int, tools: Tools = ()
    ) -> dict[str, Any]:
        body = self.body(model, messages, max_tokens) | {"stream": True}
        return body | {"tools": list(tools)} if tools else body

    def piece(self, event: Any) -> Piece:
        match event:
            case {"choices": [{"finish_reason": "content_filter"}, *_]}:
                raise model_error("openai filtered the answer", permanent=True)
            case {"choices": [{"delta": {"content": str(text), **more}, **choice}, *_]}:
                reason = choice.get("finish_reason")
                return Piece(text, reason is not None, reason == "length", openai_parts(more) if more else ())
            case {"choices": [{"delta": {"tool_calls": [*_]} as calling, **choice}, *_]}:
                reason = choice.get("finish_reason")
                return Piece("", reason is not None, reason == "length", openai_parts(calling))
            case {"choices": [{"finish_reason": str(reason)}, *_]}:
                return Piece("", True, reason == "length")
            case {"error": _}:
                raise model_error("openai broke off with an error")
        return NOTHING


class AnthropicStream(Anthropic):
    """Messages API, with one event per change."""

    def stream_path(self, model: str) -> str:
        return self.path(model)

    def stream_body(
        self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int, tools: Tools = ()
    ) -> dict[str, Any]:
        body = self.body(model, messages, max_tokens, tools=bool(tools)) | {"stream": True}
        return body | {"tools": anthropic_tools(tools)} if tools else body

    def piece(self, event: Any) -> Piece:
        match event:
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                return Piece(text)
            case {"type": "message_delta", "delta": {"stop_reason": "refusal"}}:
                raise model_error("anthropic refused to answer", permanent=True)
            case {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}:
                return Piece("", True, True)
            case {"type": "message_stop"}:
                return Piece("", True)
            case {"type": "content_block_start" | "content_block_delta"}:
                return Piece("", calls=anthropic_part(event))
            case {"type": "error"}:
                raise model_error("anthropic broke off with an error")
        return NOTHING


class GeminiStream(Gemini):
    """streamGenerateContent. Each event has the form of a complete answer."""

    def stream_path(self, model: str) -> str:
        return self.path(model).replace(":generateContent", ":streamGenerateContent?alt=sse")

    def stream_body(
        self, model: str, messages: Sequence[dict[str, Any]], max_tokens: int, tools: Tools = ()
    ) -> dict[str, Any]:
        body = self.body(model, messages, max_tokens, tools=bool(tools))
        return body | {"tools": gemini_tools(tools)} if tools else body

    def piece(self, event: Any) -> Piece:
        match event:
            case {"error": _}:
                raise model_error("gemini broke off with an error")
            case {"candidates": [{**candidate}, *_]}:
                # The last event may have a finish reason and no text.
                reason = candidate.get("finishReason")
                text, calls = self.answer(event).text, gemini_parts(candidate)
                return Piece(text, isinstance(reason, str), reason == "MAX_TOKENS", calls)
            case {"promptFeedback": {"blockReason": str()}}:
                raise model_error("gemini blocked the prompt", permanent=True)
        return NOTHING

"""Encode and decode JSON, and convert the parts of a session to JSON values."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, NoReturn

import msgspec
from starlette.responses import Response

from redismem.context.context import Context
from redismem.context.results import State, Summary
from redismem.messages.message import Message
from redismem.web.http.problems import Problem

Format = Literal["openai", "responses", "anthropic", "gemini", "converse"]
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


def encode_json(document: Any) -> bytes:
    """Return a document as JSON text. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    try:
        return _ENCODER.encode(document)
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":"), default=asdict).encode()


def indent_json(document: Any) -> bytes:
    """Return a document as JSON text for people, one value per line. Numbers and names stay as they are."""
    try:
        return msgspec.json.format(_ENCODER.encode(document), indent=2)
    except UnicodeEncodeError:
        return json.dumps(document, indent=2).encode()


def decode_json(text: bytes) -> Any:
    """Return the value of JSON text.

    Raises:
        Problem: bad_request, if the text is not JSON or is nested too deep.
    """
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        pass  # JSON allows escaped lone surrogates, msgspec does not: let json decide
    except RecursionError:
        raise Problem("bad_request", "the body is nested too deep") from None
    check_encoding(text)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Problem("bad_request", "the body is not JSON") from None


def check_encoding(text: bytes) -> None:
    """Refuse JSON text in UTF-16 or UTF-32, which the json module would detect and decode.

    Raises:
        Problem: bad_request, if there is a zero byte: no JSON text in UTF-8 has one, and any other encoding does.
    """
    if b"\0" in text:
        raise Problem("bad_request", "the body is not JSON in UTF-8")


def parse_moment(text: str, expected: str) -> datetime:
    """Return the moment that an ISO 8601 text with a time zone denotes.

    Raises:
        Problem: invalid, with `expected` as its detail, if the text is not a moment or has no time zone.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Problem("invalid", expected)
    return moment


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


class Json(Response):
    """A response with a JSON document."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode_json(content)


def state_document(state: State, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return a state as JSON values. `hidden` names the params whose values are left out."""
    params = {name: None if name in hidden else value for name, value in state.params.items()}
    return {
        "params": params,
        "hidden_params": [name for name in params if name in hidden],
        "waiting_for_param": state.waiting_for_param,
        "last_intent": state.last_intent,
        "last_result": state.last_result,
        "plan": state.plan,
        "instruction": state.instruction,
        "degraded": state.degraded,
    }


def context_document(context: Context, form: Format = "openai", hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return a context as JSON values: the request for a model in format `form`, and the parts it was made of."""
    receipt, document = context.receipt, _head_document(context, hidden)
    document["format"] = form
    document["request"] = request_document(context, form)
    document["receipt"] = None if receipt is None else receipt_document(context.session_id, receipt)
    return document


def parts_document(context: Context, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return the parts of a context as JSON values: the count and the tokens of each, and the pinned messages."""
    parts: dict[str, Sequence[Summary | Message]] = {
        "summaries": context.summaries,
        "pinned": context.pinned,
        "pending": context.pending,
        "recent": context.recent,
    }
    document = _head_document(context, hidden)
    document["parts"] = {
        name: {"count": len(part), "tokens": sum(each.tokens for each in part)} for name, part in parts.items()
    }
    document["pinned"] = [message_document(message) for message in context.pinned]
    return document


def _head_document(context: Context, hidden: Collection[str]) -> dict[str, Any]:
    return {
        "session_id": context.session_id,
        "epoch": context.epoch,
        "first_seq": context.first_seq,
        "last_seq": context.last_seq,
        "total_messages": context.total_messages,
        "recent_limit": context.recent_limit,
        "summary_version": context.summary_version,
        "summaries": context.summaries,
        "state": state_document(context.state, hidden),
        "degraded": context.degraded,
    }


def request_document(context: Context, form: Format) -> dict[str, Any]:
    """Return the part of a context to send to a model, in the format of its provider."""
    match form:
        case "responses":
            return {"input": context.to_responses()}
        case "anthropic":
            return dict(context.to_anthropic())
        case "gemini":
            return dict(context.to_gemini())
        case "converse":
            return dict(context.to_converse())  # its bytes become base64, as in Bedrock's own JSON
    return {"messages": context.to_openai()}


def receipt_document(session_id: str, receipt: Any) -> dict[str, Any]:
    """Return the receipt of an append as JSON values."""
    return {
        "session_id": session_id,
        "first_seq": receipt.first_seq,
        "last_seq": receipt.last_seq,
        "total": receipt.total,
        "created": receipt.created,
        "duplicate": receipt.duplicate,
        "degraded": receipt.degraded,
    }


def message_document(message: Message) -> dict[str, Any]:
    """Return a stored message as JSON values: its dict as it was appended, and its metadata."""
    return {
        "seq": message.seq,
        "tokens": message.tokens,
        "stored_ms": message.stored_ms,
        "pinned": message.pinned,
        "message": message.to_openai(),
        "beside": message.beside,
    }

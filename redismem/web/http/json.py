"""Encode and decode the JSON of the API, and convert a session's parts to JSON values."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, NoReturn, get_args

import msgspec
from starlette.responses import Response

from redismem.context import Context, State
from redismem.messages.message import Message
from redismem.web.http.problems import Problem

Format = Literal["openai", "anthropic", "gemini"]
FORMATS: tuple[Format, ...] = get_args(Format)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encoded(document: Any) -> bytes:
    """JSON text. Halves of surrogate pairs, which UTF-8 has no bytes for, are escaped."""
    try:
        return _encode(document)
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":"), default=asdict).encode()


def decoded(text: bytes) -> Any:
    """The JSON value. Raises Problem: bad_request."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        pass  # msgspec refuses escaped halves of surrogate pairs, which are JSON
    except RecursionError:
        raise Problem("bad_request", "the body is nested too deep") from None
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Problem("bad_request", "the body is not JSON") from None


def zoned(text: str, wanted: str) -> datetime:
    """The moment of a text. Raises Problem: invalid, with what is wanted, for one that is none or has no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Problem("invalid", wanted)
    return moment


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


class Json(Response):
    """An answer that is a JSON document."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encoded(content)


def state_document(state: State, hidden: Collection[str] = ()) -> dict[str, Any]:
    """`hidden`: names of params whose values are not shown."""
    params = {name: None if name in hidden else value for name, value in state.params.items()}
    return {
        "params": params,
        "hidden_params": [name for name in params if name in hidden],
        "waiting_for_param": state.waiting_for_param,
        "last_intent": state.last_intent,
        "last_result": state.last_result,
        "plan": state.plan,
        "degraded": state.degraded,
    }


def context_document(context: Context, form: Format = "openai", hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return the context for a model, and the parts that it was built from."""
    receipt = context.receipt
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
        "format": form,
        "request": _request(context, form),
        "receipt": None if receipt is None else receipt_document(context.session_id, receipt),
        "degraded": context.degraded,
    }


def _request(context: Context, form: Format) -> dict[str, Any]:
    if form == "anthropic":
        return dict(context.to_anthropic())
    if form == "gemini":
        return dict(context.to_gemini())
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
    """A stored message: its dict as it was put in, and what is known beside it."""
    return {
        "seq": message.seq,
        "tokens": message.tokens,
        "stored_ms": message.stored_ms,
        "pinned": message.pinned,
        "message": message.to_openai(),
        "beside": message.beside,
    }

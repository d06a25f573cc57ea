"""POST /v1/sessions/{id}/messages: on the ASGI messages alone, as this is the way of every turn."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import unquote_to_bytes

from redismem.context import Context, Receipt
from redismem.errors import InvalidMessage, RedismemError
from redismem.session.session import Session
from redismem.web.access import Caller
from redismem.web.api import schemas
from redismem.web.http.json import context_document, decoded, encoded, receipt_document
from redismem.web.http.problems import Problem
from redismem.web.http.queries import check_names
from redismem.web.service import Service

PATH = "/v1/sessions/{session_id}/messages"
_BEFORE, _BEHIND = PATH.split("{session_id}")
KEY = b"idempotency-key"
_MADE_ANEW = frozenset(["id", "metadata", "timestamp"])
"""Members that a sender may make anew for each attempt."""
_JSON = (b"content-type", b"application/json")


def is_append(path: str) -> bool:
    """Whether a POST of this path, as it was sent, is an append."""
    return path.startswith(_BEFORE) and path.endswith(_BEHIND) and "/" not in path[len(_BEFORE) : -len(_BEHIND)]


async def append_messages(
    service: Service,
    caller: Caller,
    path: str,
    query: bytes,
    headers: dict[bytes, bytes],
    body: bytes,
    answer: Any,
) -> None:
    """Appends, and answers with the receipt, or with the context after it. Raises Problem, RedismemError."""
    session = service.session(caller, session_id_of(path[len(_BEFORE) : -len(_BEHIND)]))
    wants_context = _wants_context(query)
    context: Context | None = None
    messages = decoded(body)
    if not isinstance(messages, list):
        messages = [messages]
    options = _options(headers)
    try:
        if wants_context:
            context = await session.append_and_read(*messages, **options)
            receipt = context.receipt
            document = context_document(context, hidden=service.hidden_params)
        else:
            receipt = await session.append(*messages, **options)
            document = receipt_document(session.id, receipt)
    except InvalidMessage:
        _check_body(messages)
        raise
    assert receipt is not None
    if receipt.duplicate and not await _may_be_same(session, messages, receipt, context):
        raise Problem(
            "invalid", "this Idempotency-Key was given to another message of this session; nothing was stored"
        )
    text = encoded(document)
    found = [_JSON, (b"content-length", b"%d" % len(text))]
    if not receipt.degraded:  # another message may get that seq in Redis
        found.append((b"etag", b'"%d"' % receipt.last_seq))
    await answer.send_whole(200 if receipt.duplicate else 201, found, text)


def _check_body(messages: list[Any]) -> None:
    """Says in words of HTTP what the refusal says in words of Python. Raises Problem: invalid."""
    if not messages:
        raise Problem("invalid", "the array in the body holds no message; a PATCH of …/state changes the state alone")
    if any(isinstance(each, dict) and "messages" in each and not {"role", "type"} & each.keys() for each in messages):
        raise Problem("invalid", "the body is a message, or the array of messages itself, without `messages`")


async def _may_be_same(session: Session, sent: list[Any], receipt: Receipt, context: Context | None) -> bool:
    """Whether what the append of this id has stored may be what was sent now.

    `context`: as of the append, if it was read. Whatever was edited since, or cannot be read any more, may be the same.
    """
    if receipt.degraded:
        return True
    if receipt.last_seq - receipt.first_seq + 1 != len(sent):
        return False
    with contextlib.suppress(RedismemError):  # the append was made, whatever becomes of this look
        context = context or await session.read()
    if context is None or context.degraded or context.window_version:
        return True
    stored = {each.seq: each.to_openai() for each in (*context.pinned, *context.messages)}
    pairs = ((stored.get(seq, each), each) for seq, each in enumerate(sent, receipt.first_seq))
    return all(_lasting(known) == _lasting(each) for known, each in pairs)


def _lasting(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in _MADE_ANEW}


def session_id_of(segment: str) -> str:
    """The session id that a segment of a path stands for. Raises Problem: bad_session_id."""
    if "%" not in segment and segment.isascii():
        return segment
    try:
        return unquote_to_bytes(segment.encode("latin-1")).decode()
    except UnicodeError:
        raise Problem("bad_session_id", "a session id is UTF-8, percent-encoded") from None


def _wants_context(query: bytes) -> bool:
    # Taking a query apart takes as long as storing the message.
    if not query or query == b"read=true":
        return bool(query)
    value = check_names(query, ("read",)).get("read", "false")
    if value not in ("true", "false"):
        raise Problem("invalid", "read is true or false")
    return value == "true"


def _options(headers: dict[bytes, bytes]) -> Any:
    options: dict[str, Any] = {}
    if (key := headers.get(KEY)) is not None:
        options["id"] = append_id(key)
    if (expected := headers.get(b"if-match")) is not None:
        digits = expected.strip().removeprefix(b'"').removesuffix(b'"')
        if not digits.isdigit() or len(digits) > 16:
            raise Problem("bad_request", "If-Match is the last seq that was seen, a number")
        options["expect"] = int(digits)
    return options


def append_id(key: bytes) -> str:
    """The id of an append by its Idempotency-Key. Raises Problem: bad_request."""
    if not 1 <= len(key) <= 128:
        raise Problem("bad_request", "an Idempotency-Key has 1 to 128 characters")
    return key.decode("latin-1")


def operation(responses: dict[str, Any]) -> dict[str, Any]:
    """What the OpenAPI document says of it; `responses`: the refusals that every route has."""
    message = {"type": "object", "additionalProperties": True, "description": "As a model's API takes it."}
    several = {"type": "array", "items": message, "minItems": 1}
    answers = {"anyOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in ANSWERS]}
    content = {"application/json": {"schema": answers}}
    headers = [
        ("Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": 128}, "Sent again, nothing is written."),
        ("If-Match", {"type": "string", "pattern": '^"?[0-9]{1,16}"?$'}, "The last seq that was seen."),
    ]
    return {
        "summary": "Append a message, or several",
        "description": "All or nothing. With read=true the context comes back, in the same trip to Redis.",
        "operationId": "append_messages",
        "parameters": [
            {"name": "session_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
            {"name": "read", "in": "query", "schema": {"type": "boolean", "default": False}},
            *({"name": n, "in": "header", "schema": schema, "description": text} for n, schema, text in headers),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"anyOf": [message, several]}}},
        },
        "responses": {
            "200": {"description": "It was known already", "content": content},
            "201": {"description": "It was appended", "content": content},
            **responses,
        },
    }


ANSWERS = (schemas.ReceiptDocument, schemas.ContextDocument)

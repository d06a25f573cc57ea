"""POST /v1/sessions/{id}/messages. It bypasses the web framework for speed: every turn calls it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_to_bytes

from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import IdReused, InvalidMessage
from redismem.web.access import Caller
from redismem.web.api import schemas
from redismem.web.http.json import context_document, decode_json, encode_json, receipt_document
from redismem.web.http.problems import Problem
from redismem.web.http.queries import check_names
from redismem.web.http.recalled import recalled_numbers
from redismem.web.owner_keys import check_roles
from redismem.web.service import Service

PATH = "/v1/sessions/{session_id}/messages"
_PREFIX, _SUFFIX = PATH.split("{session_id}")
KEY = b"idempotency-key"
ETAG = re.compile('"?(?:([0-9]{1,20}-[0-9a-f]{1,64})-)?([0-9]{1,16})(?:-((?:[0-9a-f]{2}){7,10}))?"?')
_JSON = (b"content-type", b"application/json")
_NO_RECALL: dict[str, Any] = {}
_TOKENS = re.compile(r"[0-9]{1,7}")


def is_append(path: str) -> bool:
    """True if a POST to this undecoded path is an append."""
    return path.startswith(_PREFIX) and path.endswith(_SUFFIX) and "/" not in path[len(_PREFIX) : -len(_SUFFIX)]


async def append_messages(
    service: Service,
    caller: Caller,
    path: str,
    query: bytes,
    headers: dict[bytes, bytes],
    body: bytes,
    answer: Any,
) -> None:
    """Append the messages of the body; answer with the receipt, or with the context if `read=true`.

    Raises:
        Problem: The request is malformed, or its Idempotency-Key belongs to another message.
        RedismemError: The append failed.
    """
    wants_context, owner, recall = _parse_query(query)
    session = service.session(caller, session_id_of(path[len(_PREFIX) : -len(_SUFFIX)]), owner)
    context: Context | None = None
    messages = decode_json(body)
    if not isinstance(messages, list):
        messages = [messages]
    check_roles(caller, messages)
    options = _options(headers)
    try:
        if wants_context:
            context = await session.append_and_read(*messages, **recall, **options)
            receipt = context.receipt
            document = context_document(context, hidden=service.hidden_params)
            if recall:
                document["recalled"] = recalled_numbers(context.recalled, session.id)
        else:
            receipt = await session.append(*messages, **options)
            document = receipt_document(session.id, receipt)
    except IdReused as reused:
        raise Problem("invalid", reused.text.replace("append id", "Idempotency-Key")) from None
    except InvalidMessage:
        _check_body(messages)
        raise
    assert receipt is not None
    text = encode_json(document)
    answer_headers = [_JSON, (b"content-length", b"%d" % len(text))]
    if not receipt.degraded:  # in Redis, this seq may go to another message
        answer_headers.append((b"etag", _etag(receipt).encode()))
    await answer.send_whole(200 if receipt.duplicate else 201, answer_headers, text)


def _check_body(messages: list[Any]) -> None:
    """Raise Problem (invalid) with an explanation for HTTP clients, if the refused body has a common mistake."""
    if not messages:
        raise Problem("invalid", "the array in the body is empty; to change only the state, PATCH …/state")
    if any(isinstance(each, dict) and "messages" in each and not {"role", "type"} & each.keys() for each in messages):
        raise Problem("invalid", "the body is a message or an array of messages, not an object with `messages`")


def session_id_of(segment: str) -> str:
    """Return the session id in a percent-encoded path segment. Raises Problem: bad_session_id."""
    if "%" not in segment and segment.isascii():
        return segment
    try:
        return unquote_to_bytes(segment.encode("latin-1")).decode()
    except UnicodeError:
        raise Problem("bad_session_id", "a session id in a path is percent-encoded UTF-8") from None


def _parse_query(query: bytes) -> tuple[bool, str | None, dict[str, Any]]:
    """Return True if the answer is the context, the owner that the request names, and the options of recall.

    Raises Problem: invalid.
    """
    # Parsing a query takes as long as storing the message, so the common ones are compared whole.
    if not query or query == b"read=true":
        return bool(query), None, _NO_RECALL
    fields = check_names(query, ("read", "owner", "recall", "recall_scope"))
    value = fields.get("read", "false")
    if value not in ("true", "false"):
        raise Problem("invalid", "read is true or false")
    return value == "true", fields.get("owner"), _parse_recall(fields)


def _parse_recall(fields: dict[str, str]) -> dict[str, Any]:
    tokens, scope = fields.get("recall"), fields.get("recall_scope", "session")
    if tokens is None:
        if "recall_scope" in fields:
            raise Problem("invalid", "recall_scope needs recall, a number of tokens")
        return _NO_RECALL
    if fields.get("read") != "true":
        raise Problem("invalid", "recall needs read=true: the messages are part of the context")
    if not _TOKENS.fullmatch(tokens) or int(tokens) > schemas.RECALL_LIMIT:
        raise Problem("invalid", f"recall is a number of tokens, 0 to {schemas.RECALL_LIMIT}")
    if scope not in ("session", "owner"):
        raise Problem("invalid", "recall_scope is session or owner")
    check_recall_owner(scope, fields.get("owner"))
    return {"recall": int(tokens), "recall_scope": scope}


def check_recall_owner(scope: str, owner: str | None) -> None:
    """Raise Problem (invalid) for recall over the conversations of an owner that the request does not name."""
    if scope == "owner" and owner is None:
        raise Problem("invalid", "recall over all conversations of an owner needs owner in the query")


def _options(headers: dict[bytes, bytes]) -> Any:
    options: dict[str, Any] = {}
    if (key := headers.get(KEY)) is not None:
        options["id"] = append_id(key)
    if (expected := headers.get(b"if-match")) is not None:
        options["expect"] = parse_expected(expected)
    return options


def _etag(receipt: Receipt) -> str:
    newest = f"-{receipt.newest_append.hex()}" if receipt.newest_append else ""
    return f'"{receipt.epoch}-{receipt.last_seq}{newest}"'


def parse_expected(header: bytes) -> int | Receipt:
    """Return the `expect` for an If-Match: the receipt of an ETag, or a bare last seq. Raises Problem: bad_request."""
    match = ETAG.fullmatch(header.strip().decode("latin-1"))
    if match is None:
        raise Problem("bad_request", "If-Match is the ETag of an earlier answer, or a last seq alone")
    epoch, digits, newest = match.groups()
    seq = int(digits)
    if epoch is None:
        return seq
    return Receipt(
        seq, seq, seq, created=False, duplicate=False, epoch=epoch, newest_append=bytes.fromhex(newest or "")
    )


def append_id(key: bytes) -> str:
    """Return the append id for an Idempotency-Key. Raises Problem: bad_request."""
    if not 1 <= len(key) <= 128:
        raise Problem("bad_request", "an Idempotency-Key has 1 to 128 characters")
    return key.decode("latin-1")


_DESCRIPTION = (
    "All or nothing. With read=true the answer is the context, read in the same trip to Redis. `recall` adds so many "
    "tokens of earlier messages that the new ones are about, also of the owner's other conversations."
)


def operation(responses: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI operation of this route. `responses` are the refusals that every route has."""
    message = {"type": "object", "additionalProperties": True, "description": "A message in a model API's format."}
    several = {"type": "array", "items": message, "minItems": 1}
    answers = {"anyOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in ANSWERS]}
    content = {"application/json": {"schema": answers}}
    headers = [
        (
            "Idempotency-Key",
            {"type": "string", "minLength": 1, "maxLength": 128},
            "A known key stores nothing.",
        ),
        ("If-Match", {"type": "string", "pattern": f"^{ETAG.pattern}$"}, "An earlier ETag, or a bare last seq."),
    ]
    return {
        "summary": "Append one or more messages",
        "description": _DESCRIPTION,
        "operationId": "append_messages",
        "parameters": [
            {"name": "session_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
            {"name": "read", "in": "query", "schema": {"type": "boolean", "default": False}},
            {"name": "owner", "in": "query", "schema": schemas.OWNER, "description": schemas.OWNER_TEXT},
            {
                "name": "recall",
                "in": "query",
                "schema": {"type": "integer", "minimum": 0, "maximum": schemas.RECALL_LIMIT},
            },
            {"name": "recall_scope", "in": "query", "schema": {"enum": ["session", "owner"], "default": "session"}},
            *({"name": n, "in": "header", "schema": schema, "description": text} for n, schema, text in headers),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"anyOf": [message, several]}}},
        },
        "responses": {
            "200": {"description": "Already stored under this Idempotency-Key", "content": content},
            "201": {"description": "Appended", "content": content},
            **responses,
        },
    }


ANSWERS = (schemas.ReceiptDocument, schemas.ContextDocument)

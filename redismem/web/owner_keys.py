"""Keys of one owner: what they may ask for, and how their requests are confined to the sessions of this owner.

The routes know nothing of it: they get a request that names the owner in its query or body, and refuse what is not the
owner's. A route that takes no owner is refused here, so a new route is refused until it takes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlencode

from redismem.formats.parts import is_instruction
from redismem.web.access import Caller
from redismem.web.http.json import decode_json, encode_json
from redismem.web.http.problems import Problem
from redismem.web.http.queries import FIELDS_COUNT, SEARCH, Documented

_SESSIONS = "/v1/sessions"
_IN_BODY = frozenset((SEARCH, "/api/chat", "/api/chat/clear", "/api/chat/stop"))
"""The routes that take the owner in the body."""
_WITHOUT = frozenset((("POST", _SESSIONS), ("GET", "/v1/about")))
"""The routes that a key of one owner may ask although they take no owner: they read nothing of any session."""


def confine(
    documented: Documented, owner: str, method: str, path: str, query: bytes, body: bytes
) -> tuple[bytes, bytes]:
    """Return the query and the body of a request, which then name this owner.

    Raises:
        Problem: other_owner, if the request names another owner; not_allowed, if its route takes none.
        Problem: bad_request, if the query or the body cannot be read.
    """
    method = "GET" if method == "HEAD" else method
    if method == "POST" and path in _IN_BODY:
        return query, _confine_body(owner, body)
    if (method, path) in _WITHOUT:
        return query, body
    if "owner" not in documented.query_names(method, path):
        raise Problem("not_allowed", "a key of one owner reaches sessions alone")
    fields = _fields_of(query)
    named = {value for name, value in fields if name == "owner"}
    _check(owner, named)
    if (method, path) == ("DELETE", _SESSIONS) and not named:
        raise Problem("not_allowed", "a key of one owner removes the sessions of this owner: name it")
    others = [(name, value) for name, value in fields if name != "owner"]
    return urlencode([*others, ("owner", owner)]).encode(), body


def check_roles(caller: Caller, payloads: Iterable[Any]) -> None:
    """Let a key of one owner send no message in the role of the system or developer, in any format.

    Raises:
        Problem: not_allowed.
    """
    if caller.owner is not None and any(isinstance(p, dict) and is_instruction(p) for p in payloads):
        raise Problem("not_allowed", "a key of one owner cannot choose what the model is told")


def _fields_of(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_COUNT)
    except ValueError:
        raise Problem("bad_request", f"a query is percent-encoded UTF-8, with at most {FIELDS_COUNT} fields") from None


def _confine_body(owner: str, body: bytes) -> bytes:
    document = decode_json(body)
    if not isinstance(document, dict):
        raise Problem("invalid", "the body is an object")
    _check(owner, {document["owner"]} if isinstance(document.get("owner"), str) else set())
    return encode_json({**document, "owner": owner})


def _check(owner: str, named: set[str]) -> None:
    if named - {owner}:
        raise Problem("other_owner", "this key belongs to another owner")

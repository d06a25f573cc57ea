"""Errors as problem details (RFC 9457): stable codes, never the text of a message, never a stack trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from redismem.errors import (
    Conflict,
    CorruptSession,
    ForgetIncomplete,
    InvalidItem,
    InvalidMessage,
    InvalidSessionId,
    InvalidState,
    InvalidTransition,
    ItemNotFound,
    NotAllowed,
    NotInWindow,
    Overloaded,
    OwnerMismatch,
    RedismemError,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    TooLarge,
    TurnBusy,
    Unconfirmed,
    UnsupportedFormat,
    WrongShards,
)
from redismem.store.retries import SERVER_WORDS

MEDIA_TYPE = "application/problem+json"
# code -> status, title
CODES: dict[str, tuple[int, str]] = {
    "bad_request": (400, "The request cannot be read"),
    "bad_session_id": (400, "The session id cannot be one"),
    "no_key": (401, "A key is needed"),
    "not_allowed": (403, "The key does not allow this"),
    "other_owner": (403, "The session is not this owner's"),
    "not_found": (404, "There is nothing here"),
    "session_not_found": (404, "There is no such session"),
    "not_in_window": (404, "The message is in the window no more"),
    "method_not_allowed": (405, "This is not done here"),
    "conflict": (409, "Another writer was faster"),
    "turn_running": (409, "Another turn of the session runs"),
    "damaged": (409, "A part of it cannot be read"),
    "session_exists": (409, "There is such a session already"),
    "too_large": (413, "Too large"),
    "invalid": (422, "The request cannot be carried out as it is"),
    "head_too_large": (431, "The head of the request is too large"),
    "too_many_requests": (429, "Too many requests"),
    "internal": (500, "A defect of the service"),
    "unreadable": (500, "The stored session cannot be read"),
    "store_unavailable": (503, "The store does not answer"),
    "forget_incomplete": (503, "Not all sessions are removed yet"),
    "unconfirmed": (503, "Too few replicas have it yet"),
    "store_not_allowed": (503, "The store does not let this server do it"),
    "other_layout": (503, "Another release has written this"),
    "overloaded": (503, "Too many at once"),
    "stopping": (503, "This server is about to stop"),
    "too_late": (503, "The request took too long"),
}
# Seconds until the next attempt, sent with each 503.
RETRY_AFTER_S = 1
_ERRORS: tuple[tuple[type[RedismemError], str], ...] = (
    (InvalidSessionId, "bad_session_id"),
    (SessionNotFound, "session_not_found"),
    (OwnerMismatch, "other_owner"),
    (NotInWindow, "not_in_window"),
    (Conflict, "conflict"),
    (TurnBusy, "turn_running"),
    (SessionExists, "session_exists"),
    (TooLarge, "too_large"),
    (ItemNotFound, "not_found"),
    (InvalidItem, "invalid"),
    (InvalidTransition, "invalid"),
    (InvalidMessage, "invalid"),
    (InvalidState, "invalid"),
    (Overloaded, "overloaded"),
    (StoreUnavailable, "store_unavailable"),
    (Unconfirmed, "unconfirmed"),
    (ForgetIncomplete, "forget_incomplete"),
    (NotAllowed, "store_not_allowed"),
    (UnsupportedFormat, "other_layout"),
    (WrongShards, "other_layout"),
    (CorruptSession, "unreadable"),
)


class Problem(Exception):
    """A response that reports an error.

    Args:
        code: One of `CODES`.
        allow: The methods of the path, for the header `Allow`.
        more: Further members of the document.
    """

    def __init__(
        self, code: str, detail: str = "", *, retry_after_s: float | None = None, allow: str = "", **more: Any
    ) -> None:
        super().__init__(code)
        self.code = code
        self.status, self.title = CODES[code]
        self.detail = detail
        self.retry_after_s = RETRY_AFTER_S if retry_after_s is None and self.status == 503 else retry_after_s
        self.allow = allow
        self.more = more

    def document(self) -> bytes:
        """Return the problem as JSON text."""
        members = {"type": f"urn:redismem:problem:{self.code}", "title": self.title, "status": self.status}
        if self.detail:
            members["detail"] = self.detail.encode("utf-8", "replace").decode()
        return msgspec.json.encode(members | {"code": self.code} | self.more)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of the problem. The edge adds the headers of every response."""
        headers = [(b"content-type", MEDIA_TYPE.encode())]
        if self.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % max(1, -(-self.retry_after_s // 1))))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers

    def whole(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return the headers, with the length, and the body of a whole answer."""
        body = self.document()
        return [*self.headers(), (b"content-length", b"%d" % len(body))], body


ANSWERED: tuple[type[Exception], ...] = (Problem, *(kind for kind, code in _ERRORS if CODES[code][0] != 500))
"""The errors that are their caller's to know. Any other is a defect of the service, or of what is stored."""


def to_problem(error: Exception) -> Problem:
    """Return the problem that reports an error. An error that is not redismem's own is `internal`, without details."""
    if isinstance(error, Problem):
        return error
    for kind, code in _ERRORS:
        if isinstance(error, kind):
            # `error.text` has no session id. Details of the store or the server are not for callers.
            detail = "" if isinstance(error, StoreUnavailable | NotAllowed | ForgetIncomplete) else error.text
            return Problem(code, detail, retry_after_s=_retry_after_s(error), **_members_of(error))
    if isinstance(error, TimeoutError):
        return Problem("too_late")
    return Problem("internal")


def _retry_after_s(error: RedismemError) -> float | None:
    if isinstance(error, Overloaded):
        return error.retry_after_s
    return error.left_ms / 1000 if isinstance(error, TurnBusy) else None


def may_be_done(error: Exception) -> bool:
    """True if the server may have carried out the operation despite this error."""
    return isinstance(error, Unconfirmed | TimeoutError) or (isinstance(error, StoreUnavailable) and error.may_be_done)


def _members_of(error: RedismemError) -> Mapping[str, Any]:
    """Return the members that a program needs to react to the error."""
    if isinstance(error, Conflict) and error.session_id is not None:  # not of an item of a project
        return {"last_seq": error.last_seq, "cleared": error.cleared}
    if isinstance(error, TurnBusy):
        return {"left_ms": error.left_ms}
    if isinstance(error, ForgetIncomplete):
        done = error.forgotten
        counts = ("session_count", "quarantined_count", "record_count")
        return {name: getattr(done, name) for name in counts}
    if isinstance(error, StoreUnavailable) and error.reason in SERVER_WORDS:
        return {"reason": error.reason}
    if isinstance(error, InvalidTransition):
        return {"before": error.before, "after": error.after}
    return {}

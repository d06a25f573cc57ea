"""The status and text of each failure."""

from __future__ import annotations

import logging
from typing import Any

from openai import OpenAIError

from redismem import Conflict, IdReused, RedismemError, SessionNotFound, StoreUnavailable, TooLarge, Unconfirmed

log = logging.getLogger("uvicorn.error")


class Refused(Exception):
    """A failure of the chat's own, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


FAILURES: tuple[type[Exception], ...] = (RedismemError, OpenAIError, Refused)
STATUSES: dict[type[Exception], int] = {
    SessionNotFound: 404,
    Conflict: 409,  # another turn of this chat was faster,
    IdReused: 409,  # or another try of this turn
    TooLarge: 413,
    ValueError: 422,  # InvalidMessage, InvalidState, InvalidSessionId
    StoreUnavailable: 503,
    Unconfirmed: 503,
}


def problem_of(error: Exception) -> dict[str, Any]:
    """Return the status and text to send to the client."""
    if isinstance(error, Refused):
        return {"status": error.status, "detail": str(error)}
    if not isinstance(error, RedismemError):
        log.warning("the model failed: %s", type(error).__name__)  # its own text may quote the conversation
        return {"status": 502, "detail": "the model gave no answer"}
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
    if status >= 500:
        log.error("%s", error)  # no error of redismem contains message text
    return {"status": status, "detail": error.text}

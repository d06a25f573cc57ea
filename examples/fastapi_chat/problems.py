"""The status and text of each failure."""

from __future__ import annotations

import logging
from typing import Any

from redismem import (
    IdReused,
    OwnerMismatch,
    RedismemError,
    SessionNotFound,
    StoreUnavailable,
    TooLarge,
    TurnBusy,
    Unconfirmed,
)

log = logging.getLogger("uvicorn.error")


class Refused(Exception):
    """A failure of the chat's own, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


FAILURES = (RedismemError, Refused)
STATUSES: dict[type[Exception], int] = {
    OwnerMismatch: 403,  # the chat is of another user
    SessionNotFound: 404,
    TurnBusy: 409,  # other turns of this chat took too long
    IdReused: 422,  # the id was used for another question
    TooLarge: 413,
    ValueError: 422,  # InvalidMessage, InvalidState, InvalidSessionId
    StoreUnavailable: 503,
    Unconfirmed: 503,
}


def problem_of(error: RedismemError | Refused) -> dict[str, Any]:
    """Return the status and text to send to the client."""
    if isinstance(error, Refused):
        return {"status": error.status, "detail": str(error)}
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
    if status >= 500:
        log.error("%s", error)  # no error of redismem contains message text
    return {"status": status, "detail": error.text}

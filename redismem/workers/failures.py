"""Log worker failures with a reason an operator can act on, and without message text."""

from __future__ import annotations

import errno
import logging

from redismem.errors import ModelFailed, RedismemError, UnsupportedFormat
from redismem.events import Facts, unquoted
from redismem.protocol.layout import REASON

log = logging.getLogger("redismem.worker")

_NAMED_COUNT = 10_000


def reason_of(error: Exception) -> str:
    """Return a reason that is safe to store and show: the reason that a ModelFailed has, or the error's class name.

    For an OSError the name is followed by its errno, such as `OSError ENOSPC`.
    """
    kind = type(error).__name__
    if isinstance(error, ModelFailed) and REASON.fullmatch(error.reason):
        return error.reason
    if isinstance(error, OSError) and error.errno is not None:
        kind = f"{kind} {errno.errorcode.get(error.errno, error.errno)}"
    return kind if REASON.fullmatch(kind) else "an error with a name that is not ASCII"


def log_failure(what: str, error: Exception, known: Facts) -> None:
    """Log a warning that `what` happened because of the error.

    A RedismemError never contains message text, so its text is logged, without the session id. Another error, such as
    one raised by the caller's strategy or `on_evict`, may contain it: only its `reason_of` and a traceback without the
    error's text are logged.
    """
    extra = {**known, "error": type(error).__name__, "reason": reason_of(error)}
    if isinstance(error, RedismemError):
        log.warning("%s: %s: %s", what, extra["error"], error.text, extra=extra)
    else:
        log.warning("%s: %s", what, extra["reason"], exc_info=unquoted(error), extra=extra)


class OtherLayouts:
    """The sessions of another layout that have been logged. One log line per session is enough."""

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()

    def is_named(self, session: str, error: Exception) -> bool:
        """True if the error is an UnsupportedFormat that was already logged for this session."""
        if not isinstance(error, UnsupportedFormat):
            return False
        if len(self._named) >= _NAMED_COUNT:
            self._named.clear()
        is_named = (session, error.text) in self._named
        self._named.add((session, error.text))
        return is_named

"""How a failure of a worker is logged: with a reason an operator can use, and no text of a message in its sentence."""

from __future__ import annotations

import errno
import logging

from redismem.errors import ModelFailed, RedismemError, UnsupportedFormat
from redismem.events import Facts, unquoted
from redismem.protocol.layout import REASON

log = logging.getLogger("redismem.worker")

_NAMED_COUNT = 10_000


def reason_of(error: Exception) -> str:
    """What may be stored and shown of an error: the reason that a model gave for it, else its kind.

    Of an error of the system its name stands behind it, such as `OSError ENOSPC`.
    """
    kind = type(error).__name__
    if isinstance(error, ModelFailed) and REASON.fullmatch(error.reason):
        return error.reason
    if isinstance(error, OSError) and error.errno is not None:
        kind = f"{kind} {errno.errorcode.get(error.errno, error.errno)}"
    return kind if REASON.fullmatch(kind) else "an error with a name that is not ASCII"


def log_failure(what: str, error: Exception, known: Facts) -> None:
    """Warns that `what` happened because of the error.

    An error of redismem is quoted without its session's id: its text never holds that of a message. Of another one,
    such as a strategy or an `on_evict` of the caller's own raises, only what `reason_of` says stands in the sentence,
    and the record carries the traceback without what the error says.
    """
    extra = {**known, "error": type(error).__name__, "reason": reason_of(error)}
    if isinstance(error, RedismemError):
        log.warning("%s: %s: %s", what, extra["error"], error.text, extra=extra)
    else:
        log.warning("%s: %s", what, extra["reason"], exc_info=unquoted(error), extra=extra)


class OtherLayouts:
    """Sessions of another layout that a log has named: it stays what it is, so once is enough, and not each tick."""

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()

    def is_named(self, session: str, error: Exception) -> bool:
        """Whether it is such an error, and has been asked of before."""
        if not isinstance(error, UnsupportedFormat):
            return False
        if len(self._named) >= _NAMED_COUNT:
            self._named.clear()
        is_named = (session, error.text) in self._named
        self._named.add((session, error.text))
        return is_named

"""How a failure of a worker is logged: with a reason an operator can use, and no text of a message in its sentence."""

from __future__ import annotations

import logging

from redismem.errors import RedismemError
from redismem.events import Facts

log = logging.getLogger("redismem.worker")


def log_failure(what: str, error: Exception, known: Facts) -> None:
    """Warns that `what` happened because of the error.

    An error of redismem is quoted without its session's id: its text never holds that of a message. Of another one,
    such as a strategy or an `on_evict` of the caller's own raises, only the kind stands in the sentence, and the record
    carries the traceback.
    """
    kind = type(error).__name__
    if isinstance(error, RedismemError):
        log.warning("%s: %s: %s", what, kind, error.text, extra={**known, "error": kind})
    else:
        log.warning("%s: %s", what, kind, exc_info=error, extra={**known, "error": kind})

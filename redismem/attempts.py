"""When to try a call again: full-jitter backoff within one deadline. No I/O, no sleeping; the memories do that.

Backoff: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("full jitter").
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from redismem.errors import TRANSIENT_WORDS, ConnectionLost, ServerError, StoreUnavailable
from redismem.replies import refusal

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_random = random.SystemRandom()


class Attempts:
    """The attempts of one call."""

    __slots__ = ("_attempt_s", "_clock", "_deadline", "_made", "_session_id")

    def __init__(
        self,
        session_id: str | None,
        deadline_s: float,
        attempt_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session_id = session_id
        self._attempt_s = attempt_s
        self._clock = clock
        self._deadline = clock() + deadline_s
        self._made = 0

    def timeout_s(self) -> float:
        """What the next attempt may take."""
        left_s = self._deadline - self._clock()
        return self._attempt_s if left_s >= self._attempt_s else max(0.001, left_s)

    def pause_s(self, failure: ServerError | ConnectionLost) -> float:
        """Seconds to wait before the next attempt.

        Raises what the failure means where another attempt is of no use: the refusal of a script, or StoreUnavailable.
        """
        if isinstance(failure, ServerError):
            refused = refusal(failure, self._session_id)
            if refused is not None:
                raise refused
            if failure.word not in TRANSIENT_WORDS:
                raise StoreUnavailable(f"Redis refused the call: {failure.word}", self._session_id, failure.word)
            reason = failure.word
        else:
            reason = failure.reason
        self._made += 1
        if reason == "NOSCRIPT" and self._made == 1:
            return 0.0
        pause_s = _random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._made))
        if self._clock() + pause_s >= self._deadline:
            raise StoreUnavailable(
                f"Redis did not take the call in time, after {self._made} attempts: {reason}",
                self._session_id,
                reason,
            )
        return pause_s

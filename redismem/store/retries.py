"""When to send a call again: full-jitter backoff within one deadline. No I/O, no sleeping; the store does that.

Backoff: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("full jitter").
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from redismem.errors import StoreUnavailable
from redismem.protocol.replies import refusal
from redismem.protocol.server_errors import LASTING_WORDS, TRANSIENT_WORDS, ConnectionLost, ServerError
from redismem.transport.base import BEHIND_SENTINELS

SERVER_WORDS = TRANSIENT_WORDS | LASTING_WORDS
"""The words of servers that a `StoreUnavailable` may have as its reason."""
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_random = random.SystemRandom()

# What an operator has to know of some refusals: a word, what the text of the reply holds, what it means.
_MEANINGS = (
    ("NOAUTH", "", "it asks for a password, and the URL has none: redis://:password@host"),
    ("WRONGPASS", "", "it knows no such user and password as the URL has"),
    ("ERR", "without any password configured", "the URL has a password, but the server has none for this user"),
    ("ERR", "no password is set", "the URL has a password, but the server has none"),
    ("ERR", "DB index is out of range", "it has no database of the number that the URL names"),
    ("ERR", "SELECT is not allowed in cluster mode", "a cluster has only database 0, the URL names another"),
    ("OOM", "", "its memory is full: raise maxmemory, or let workers make room"),
    ("NOSCRIPT", "deploy", "it does not know the scripts, and this user may load none: run `redismem deploy`"),
    ("ERR", "No such master with that name", "the sentinels know no service of the name that the URL has"),
    ("ERR", "command 'SENTINEL'", "it is no sentinel: of one Redis the URL begins with redis://"),
    ("ERR", "cluster support disabled", "it is one node and no cluster: the URL begins with redis://"),
    ("MOVED", "", "it is a node of a cluster: the URL begins with redis+cluster://"),
    ("CLUSTERDOWN", "not served", "no node has the slot"),
    ("CLUSTERDOWN", "no node has", "no node has the slot"),
    ("CLUSTERDOWN", "", "a part of the cluster is away, and cluster-require-full-coverage is yes"),
    ("HandshakeTimeout", "", "it did not begin TLS in time: if it speaks none, its URL begins with redis://"),
    ("gaierror", "", "nothing is known by that host name"),
    ("ConnectionRefusedError", "", "nothing listens there"),
)


class Retries:
    """The retries of one call."""

    __slots__ = (
        "_answer",
        "_clock",
        "_deadline",
        "_redis",
        "_reply_timeout_s",
        "_sent_count",
        "_session_id",
        "may_be_done",
    )

    def __init__(
        self,
        session_id: str | None,
        deadline_s: float,
        reply_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        place: str = "",
    ) -> None:
        """`place`: where Redis is, for the texts of errors."""
        self._session_id = session_id
        self._redis = redis_at(place)
        self._reply_timeout_s = reply_timeout_s
        self._clock = clock
        self._deadline = clock() + deadline_s
        self._sent_count = 1
        self._answer = ("", "")
        self.may_be_done = False
        """Whether it was sent without an answer, so that it may have been carried out."""

    def timeout_s(self) -> float:
        """Seconds to wait for the next reply."""
        left_s = self._deadline - self._clock()
        return self._reply_timeout_s if left_s >= self._reply_timeout_s else max(0.001, left_s)

    def pause_s(self, failure: ServerError | ConnectionLost) -> float:
        """Seconds to wait before the call is sent again.

        Raises what the failure means if that is of no use: the refusal of a script, or StoreUnavailable.
        """
        if isinstance(failure, ServerError):
            refused = refusal(failure, self._session_id)
            if refused is not None:
                raise refused
            if failure.word not in TRANSIENT_WORDS:
                text = f"{self._redis} refused the call: {_explained(failure)}"
                raise self._unavailable(text, failure.word)
            reason = failure.word
        else:
            reason = failure.reason
            if failure.lasts:
                text = f"{self._redis} cannot be called: {_explained(failure)}"
                raise self._unavailable(text, reason)
        if reason in TRANSIENT_WORDS:
            self._answer = (reason, _explained(failure))
        pause_s = _random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._sent_count))
        if self._clock() + pause_s >= self._deadline:
            text = f"{self._redis} did not take the call in time, tried {self._sent_count} times: "
            answered, meaning = self._answer
            if answered and reason == "TimeoutError":
                # What is left of the deadline may be too short for any answer: the one before says what is wrong.
                raise self._unavailable(f"{text}{meaning}, then {reason}", answered)
            raise self._unavailable(text + _explained(failure), reason)
        self._sent_count += 1
        return pause_s

    def note(self, failure: ServerError | ConnectionLost) -> None:
        """What an attempt came to."""
        self.may_be_done = self.may_be_done or (isinstance(failure, ConnectionLost) and failure.sent)

    def _unavailable(self, text: str, reason: str) -> StoreUnavailable:
        text += perhaps(self.may_be_done)
        return StoreUnavailable(text, self._session_id, reason, may_be_done=self.may_be_done)


def redis_at(place: str) -> str:
    """What the text of an error calls the server."""
    if place.startswith(BEHIND_SENTINELS):
        return f"Redis {place}"
    return f"Redis at {place}" if place else "Redis"


def perhaps(may_be_done: bool) -> str:
    """What the text of an error adds for a call that was sent and not answered."""
    return "; this call was sent and may have been carried out" if may_be_done else ""


def explained(reason: str, text: str = "", otherwise: str = "") -> str:
    """The reason, and what an operator has to know beside it. `text`: the server's reply, if it has replied."""
    meaning = next((meaning for name, part, meaning in _MEANINGS if name == reason and part in text), otherwise)
    return f"{reason}, {meaning}" if meaning else reason


def _explained(failure: ServerError | ConnectionLost) -> str:
    if isinstance(failure, ServerError):
        return explained(failure.word, failure.text)
    return explained(failure.reason, failure.text, failure.text)

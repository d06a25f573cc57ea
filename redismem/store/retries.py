"""Decide when to retry a call: after a lost reply at once, then with full-jitter backoff, within one deadline. No I/O.

The store does the sleeping.

Backoff: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("full jitter").
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from redismem.errors import StoreUnavailable
from redismem.protocol.call import Call
from redismem.protocol.replies import refusal
from redismem.protocol.server_errors import LASTING_WORDS, TRANSIENT_WORDS, ConnectionLost, ServerError
from redismem.store.overload import RetryBudget, overloaded
from redismem.transport.base import BEHIND_SENTINELS

T = TypeVar("T")

SERVER_WORDS = TRANSIENT_WORDS | LASTING_WORDS
"""The server's error words that a `StoreUnavailable` may have as its reason."""
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_UNSETTLED_COUNT = 10_000
_random = random.SystemRandom()

# Explanations for operators: error word, a part of the reply's text, meaning.
_MEANINGS = (
    ("NOAUTH", "", "it requires a password, and the URL has none: redis://:password@host"),
    ("WRONGPASS", "", "it does not accept the user and password in the URL, or from credentials or password file"),
    ("ERR", "without any password configured", "a password is given, but the server has none for this user"),
    ("ERR", "no password is set", "a password is given, but the server has none"),
    ("ERR", "DB index is out of range", "it has no database with the number in the URL"),
    ("ERR", "SELECT is not allowed in cluster mode", "a cluster has only database 0, and the URL names another"),
    ("OOM", "", "its memory is full: raise maxmemory, or let workers make room"),
    (
        "NOSCRIPT",
        "may not load",
        "it does not know the scripts, and this user may not load them: run `redismem repair scripts`",
    ),
    ("ERR", "No such master with that name", "the sentinels monitor no service with the name in the URL"),
    ("ERR", "command 'SENTINEL'", "it is not a sentinel: the URL of a single Redis begins with redis://"),
    ("ERR", "cluster support disabled", "it is a single node, not a cluster: its URL begins with redis://"),
    ("MOVED", "", "it is a node of a cluster: its URL begins with redis+cluster://"),
    ("CLUSTERDOWN", "not served", "no node has the slot"),
    ("CLUSTERDOWN", "no node has", "no node has the slot"),
    ("CLUSTERDOWN", "", "a part of the cluster is down, and cluster-require-full-coverage is yes"),
    ("HandshakeTimeout", "", "the TLS handshake timed out: if the server has no TLS, its URL begins with redis://"),
    ("CredentialsFailed", "", "the credentials or the password file gave no user and password"),
    ("EMFILE", "", "this process has no file descriptor left: raise its limit (ulimit -n, LimitNOFILE)"),
    ("ENFILE", "", "this machine has no file descriptor left"),
    ("EADDRNOTAVAIL", "", "this machine has no free port left for a connection to it"),
    ("gaierror", "", "the host name cannot be resolved"),
    ("ConnectionRefusedError", "", "nothing listens there"),
)


class Retries:
    """The retries of one call."""

    __slots__ = (
        "_answer",
        "_budget",
        "_clock",
        "_deadline",
        "_redis",
        "_reply_timeout_s",
        "_sent_count",
        "_session_id",
        "_why",
        "may_be_done",
    )

    def __init__(
        self,
        session_id: str | None,
        deadline_s: float,
        reply_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        place: str = "",
        budget: RetryBudget | None = None,
    ) -> None:
        """Start the deadline.

        Args:
            session_id: The session of the call.
            deadline_s: The seconds that are left for the call.
            reply_timeout_s: The seconds to wait for a reply.
            clock: The clock of the deadline.
            place: The address of Redis for error texts.
            budget: The budget of this process for retries in an overload. `None` lets the call wait until its deadline.
        """
        self._session_id = session_id
        self._redis, self._budget = redis_at(place), budget
        self._reply_timeout_s = reply_timeout_s
        self._clock = clock
        self._deadline = clock() + deadline_s
        self._sent_count = 1
        self._answer = self._why = ("", "")
        self.may_be_done = False
        """True once an attempt was sent and got no reply, so that Redis may have made the call."""

    def timeout_s(self) -> float:
        """Return the seconds to wait for the next reply.

        Raises:
            StoreUnavailable: The deadline passed while this process was busy, so nothing is sent any more.
        """
        left_s = self._deadline - self._clock()
        if left_s <= 0:
            reason, meaning = self._why
            text = f"{self._redis} did not take the call in time, tried {self._sent_count} times: {meaning}"
            raise self._unavailable(text, reason)
        return min(self._reply_timeout_s, left_s)

    def pause_s(self, failure: ServerError | ConnectionLost) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            RedismemError: A script refused the call; the error says why.
            StoreUnavailable: A retry would not help, or the deadline has passed.
        """
        if isinstance(failure, ServerError):
            refused = refusal(failure, self._session_id)
            if refused is not None:
                raise refused
            if failure.word not in TRANSIENT_WORDS:
                text = f"{self._redis} refused the call: {_explain(failure)}"
                raise self._unavailable(text, failure.word)
            reason = failure.word
        else:
            reason = failure.reason
            if failure.crowded and self._budget is not None:
                self._take_retry(self._budget, failure)
            elif failure.lasts and not failure.crowded:
                raise self._unavailable(f"{self._redis} cannot be called: {_explain(failure)}", reason)
        self._why = (reason, _explain(failure))
        if reason in TRANSIENT_WORDS:
            self._answer = self._why
        pause_s = _random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._sent_count))
        if self._sent_count == 1 and isinstance(failure, ConnectionLost) and failure.sent:
            pause_s = 0.0  # the sooner an append is resent, the fewer appends of other processes come between
        if self._clock() + pause_s >= self._deadline:
            text = f"{self._redis} did not take the call in time, tried {self._sent_count} times: "
            answered, meaning = self._answer
            if answered and reason == "TimeoutError":
                # The time left may have been too short for any reply. Report the last error reply instead of the
                # timeout.
                raise self._unavailable(f"{text}{meaning}, then {reason}", answered)
            raise self._unavailable(text + _explain(failure), reason)
        self._sent_count += 1
        return pause_s

    def note(self, failure: ServerError | ConnectionLost) -> None:
        """Record whether Redis may have made a failed attempt."""
        self.may_be_done = self.may_be_done or (isinstance(failure, ConnectionLost) and failure.sent)

    def _take_retry(self, budget: RetryBudget, failure: ConnectionLost) -> None:
        """Take a retry for a call that was late while Redis answered others.

        Raises:
            Overloaded: The call was never sent, and there is no room or no retry left.
            StoreUnavailable: It was sent, and there is no retry left.
        """
        if not failure.lasts and budget.take():
            return
        if self.may_be_done:
            text = f"{self._redis} answers late, and this process has used up its retries: {_explain(failure)}"
            raise self._unavailable(text, failure.reason)
        text = f"{self._redis} cannot be called: {_explain(failure)}, so this call was not sent"
        raise overloaded(text, self._session_id, failure.reason)

    def _unavailable(self, text: str, reason: str) -> StoreUnavailable:
        text += possibly_made(self.may_be_done)
        return StoreUnavailable(text, self._session_id, reason, may_be_done=self.may_be_done)


class Unsettled:
    """The sessions and records of calls that ended while an attempt may still arrive, by key; empty in most processes.

    The next call about such a session or record is sent as a resent one, which overtakes the attempt.
    """

    def __init__(self) -> None:
        self.keys: dict[bytes, None] = {}

    def note(self, call: Call[Any]) -> None:
        """Note that an attempt of this call may still arrive."""
        self.keys |= dict.fromkeys(call.fenced_keys)
        while len(self.keys) > _UNSETTLED_COUNT:
            self.keys.pop(next(iter(self.keys)), None)

    def settle(self, call: Call[T], *, may_repeat: bool) -> Call[T]:
        """Return the call to send: one that overtakes the noted attempts about its session or records.

        `may_repeat` is True if the client may resend it by itself.
        """
        keys = [key for key in call.fenced_keys if key in self.keys]
        for key in keys:
            self.keys.pop(key, None)
        return call.again(is_sent=bool(keys)) if keys or may_repeat else call


def redis_at(place: str) -> str:
    """Return the server's name for an error text."""
    if place.startswith(BEHIND_SENTINELS):
        return f"Redis {place}"
    return f"Redis at {place}" if place else "Redis"


def possibly_made(may_be_done: bool) -> str:
    """Return the end of an error text if a call was sent but got no reply, else ""."""
    return "; this call was sent and may have been carried out" if may_be_done else ""


def explain(reason: str, details: str = "", reply: str = "") -> str:
    """Return the reason with its details or, without any, an explanation for operators.

    `reply` is the server's error reply, if there is one.
    """
    meanings = (meaning for word, part, meaning in _MEANINGS if word == reason and part in reply)
    meaning = details or next(meanings, "")
    return f"{reason}, {meaning}" if meaning else reason


def _explain(failure: ServerError | ConnectionLost) -> str:
    if isinstance(failure, ServerError):
        return explain(failure.word, reply=failure.text)
    return explain(failure.reason, failure.text)

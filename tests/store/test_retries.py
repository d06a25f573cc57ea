"""Retries: of which calls, and for how long."""

from __future__ import annotations

import re

import pytest

from redismem.errors import Conflict, CorruptSession, ScriptFailed, StoreUnavailable, TooLarge
from redismem.protocol.server_errors import LASTING_WORDS, TRANSIENT_WORDS, ConnectionLost, ServerError
from redismem.store.retries import Retries


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_full_memory_is_explained(clock: Clock) -> None:
    with pytest.raises(StoreUnavailable, match="OOM, its memory is full: raise maxmemory, or let workers make room"):
        Retries("s", 5, 1, clock).pause_s(ServerError("OOM", "OOM command not allowed when used memory > 'maxmemory'"))


@pytest.mark.parametrize("word", sorted(TRANSIENT_WORDS))
def test_transient_errors_are_retried_until_the_deadline(clock: Clock, word: str) -> None:
    attempts = Retries("s", 5, 1, clock)
    pauses = []

    def keep_trying() -> None:
        while True:
            pauses.append(attempts.pause_s(ServerError(word, f"{word} what the server said")))
            clock.now += pauses[-1]

    with pytest.raises(StoreUnavailable) as failed:
        keep_trying()
    assert failed.value.reason == word
    assert failed.value.session_id == "s"
    assert len(pauses) >= 10
    assert 104 < clock.now < 105
    assert all(0 <= pause <= 0.5 for pause in pauses)


def test_the_pauses_grow_and_differ(clock: Clock) -> None:
    seconds, sixths = [], []
    for _ in range(50):
        attempts = Retries("s", 1000, 1, clock)
        pauses = [attempts.pause_s(ConnectionLost("reset")) for _ in range(6)]
        assert pauses[0] == 0, "a call whose reply was lost is resent at once"
        seconds.append(pauses[1])
        sixths.append(pauses[5])
    assert max(seconds) <= 0.04
    assert 0.04 < max(sixths) <= 0.5
    assert len(set(seconds)) > 25
    assert any(Retries("s", 5, 1, clock).pause_s(ConnectionLost("reset", sent=False)) for _ in range(50))


@pytest.mark.parametrize("word", [*sorted(LASTING_WORDS), "ERR", "SOMETHING"])
def test_errors_that_an_operator_must_fix_fail_at_once(clock: Clock, word: str) -> None:
    with pytest.raises(StoreUnavailable) as failed:
        Retries("s", 5, 1, clock).pause_s(ServerError(word, f"{word} command not allowed CANARY"))
    assert failed.value.reason == word
    assert "CANARY" not in str(failed.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CONFLICT 7", Conflict),
        ("FULL 10", TooLarge),
        ("PARAMS 300", TooLarge),
        ("CORRUPT no epoch", CorruptSession),
        ("WRONGTYPE Operation against a key", CorruptSession),
        ("ERR user_script:12: attempt to index", ScriptFailed),
    ],
)
def test_a_refusal_is_raised_and_not_retried(clock: Clock, text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Retries("s", 5, 1, clock).pause_s(ServerError(text.partition(" ")[0], text))


def test_a_lost_connection_is_retried_until_the_deadline(clock: Clock) -> None:
    attempts = Retries("s", 5, 1, clock)
    attempts.pause_s(ConnectionLost("TimeoutError"))
    clock.now += 5
    with pytest.raises(StoreUnavailable, match="TimeoutError") as failed:
        attempts.pause_s(ConnectionLost("TimeoutError"))
    assert failed.value.reason == "TimeoutError"


@pytest.mark.parametrize(("lost", "reason"), [("TimeoutError", "NOSCRIPT"), ("ConnectionRefusedError", "Connection.*")])
def test_the_last_error_reply_is_reported_if_the_last_attempt_timed_out(clock: Clock, lost: str, reason: str) -> None:
    attempts = Retries("s", 5, 1, clock)
    attempts.pause_s(ServerError("NOSCRIPT", "NOSCRIPT may not load"))
    clock.now += 5
    with pytest.raises(StoreUnavailable, match=f"tried 2 times: {reason}") as failed:
        attempts.pause_s(ConnectionLost(lost))
    assert re.fullmatch(reason, failed.value.reason)
    told = (
        "run `redismem repair scripts`, then TimeoutError" if reason == "NOSCRIPT" else f"{lost}, nothing listens there"
    )
    assert str(failed.value).endswith(told)


def test_a_cluster_that_reported_itself_down_is_reported_after_a_timeout(clock: Clock) -> None:
    attempts = Retries("s", 5, 1, clock)
    attempts.pause_s(ConnectionLost("CLUSTERDOWN", sent=False))
    clock.now += 5
    with pytest.raises(StoreUnavailable, match="cluster-require-full-coverage is yes, then TimeoutError") as failed:
        attempts.pause_s(ConnectionLost("TimeoutError"))
    assert failed.value.reason == "CLUSTERDOWN"


def test_an_attempt_may_take_its_time_but_not_past_the_deadline(clock: Clock) -> None:
    attempts = Retries("s", 5, 2, clock)
    assert attempts.timeout_s() == 2
    clock.now += 4
    assert attempts.timeout_s() == 1
    attempts.pause_s(ConnectionLost("reset"))
    clock.now += 1
    with pytest.raises(StoreUnavailable, match="in time, tried 2 times: reset") as late:
        attempts.timeout_s()  # the process was too busy to send it in time, so it is not sent
    assert late.value.reason == "reset"

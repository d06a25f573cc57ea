"""The calls of the workers: limits of the settings, and what a commit covers."""

from __future__ import annotations

from redismem.context.context import Context
from redismem.context.results import State, Summary
from redismem.messages.message import Message
from redismem.protocol.keys import Keys
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.settings.settings import Settings

SETTINGS = Settings(
    threshold=1234,
    threshold_tokens=98_765,
    recent_limit=3,
    lease_s=56.789,
    summaries_limit=17,
    max_attempts=19,
    keep_originals=True,
)
KEYS = Keys("shop", 8)
SESSION = KEYS.session("user-42")
CALLS = QueueCalls(SESSION, SETTINGS, lambda: NOW_MS)
NOW_MS = 1_700_000_000_123


def message(seq: int, tokens: int, role: str = "user") -> Message:
    stored = Message(role, "x")
    stored.seq, stored.tokens = seq, tokens
    return stored


# 32 is pinned, 33 a gap.
MESSAGES = [message(31, 100), message(34, 11), message(35, 7)]
CONTEXT = Context("user-42", [], MESSAGES, State(), 35, 31, 35, "7-e", 3, window_version="v-7")
CONTEXT.pinned = [message(5, 1, "system"), message(32, 1, "system")]
JOB = Job("9-f", 1, NOW_MS, CONTEXT, elements=[b"element"] * 5)


def summary(first_seq: int) -> Summary:
    return Summary("id", "text", first_seq, first_seq + 1, 1, 2, "model", 3, 4, ())


LIMITS = {"threshold": 1234, "token_limit": 98_765, "recent_limit": 3, "summaries_limit": 17}


def test_a_claim_and_a_commit_have_the_limits_of_the_settings() -> None:
    for call in (CALLS.claim(), CALLS.commit(JOB, MESSAGES[:2], None)):
        assert call.named is not None
        assert LIMITS.items() <= call.named.items()


def test_a_session_becomes_dead_after_the_claims_of_the_settings_or_at_once() -> None:
    counts = [CALLS.release("9-f", 777, counts=True, dead=dead).named for dead in (False, True)]
    assert [named and named["max_attempts"] for named in (CALLS.claim().named, *counts)] == [20, 20, 0]


def test_a_commit_covers_messages_and_moves_the_pinned_ones_and_the_gaps_with_them() -> None:
    originals = {b"1": b"block", b"s1": b"signature"}
    call = CALLS.commit(JOB, MESSAGES[:2], summary(31), [summary(5), summary(8)], originals, b"sketched")
    assert call.named is not None
    covered = {"first_seq": 31, "next_seq": 35, "count": 4, "uncounted_count": 2, "tokens": 111}
    assert covered.items() <= call.named.items()
    assert (call.named["pinned_field"], call.named["pinned"]) == (b"pinned:32", JOB.elements[1])
    assert call.named["more"] == (b"1", b"block", b"s1", b"signature", b"summary:5", b"summary:8")


def test_a_claim_is_followed_by_a_read_of_the_session() -> None:
    assert CALLS.claim().commands[1:] == (("HGETALL", SESSION.state), ("LRANGE", SESSION.messages, 0, -1))

"""The calls of the workers match the headers of the scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from support.script_text import header

from redismem.context import Context, State, Summary
from redismem.messages.message import Message
from redismem.protocol import scripts
from redismem.protocol.call import Call
from redismem.protocol.keys import Keys
from redismem.protocol.layout import EvictionReason
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.protocol.session.edits import View
from redismem.settings.settings import Settings

# Every value differs from all others, so that swapped arguments fail.
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
SHARD = SESSION.shard
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


def nonce(value: object) -> bool:
    return re.fullmatch(rb"[0-9a-f]{16}", value if isinstance(value, bytes) else b"") is not None


NEW = summary(31)
ORIGINALS = {b"1": b"block", b"s1": b"signature", b"2": b"another", b"s2": b"its own"}
ORIGINALS_TAIL = [part for field in ORIGINALS.items() for part in field]
CALLED: dict[str, tuple[Callable[[], Call[Any]], dict[str, Any]]] = {
    "claim": (
        CALLS.claim,
        {
            "session": b"user-42",
            "now_ms": NOW_MS,
            "nonce": nonce,
            "lease_ms": 56_789,
            "threshold": 1234,
            "token_limit": 98_765,
            "recent_limit": 3,
            "summaries_limit": 17,
            "max_attempts": 20,
        },
    ),
    "extend": (
        lambda: CALLS.extend("9-f"),
        {"session": b"user-42", "now_ms": NOW_MS, "fence": "9-f", "lease_ms": 56_789},
    ),
    "commit": (
        lambda: CALLS.commit(JOB, MESSAGES[:2], NEW, [summary(5), summary(8)], ORIGINALS, b"sketched"),
        {
            "session": b"user-42",
            "now_ms": NOW_MS,
            "fence": "9-f",
            "epoch": "7-e",
            "first_seq": 31,
            "edited": "v-7",
            "next_seq": 35,
            "count": 4,
            "uncounted_count": 2,
            "tokens": 111,
            "threshold": 1234,
            "token_limit": 98_765,
            "recent_limit": 3,
            "summaries_limit": 17,
            "summary_field": b"summary:31",
            "summary": NEW.encode(),
            "sketch": b"sketched",
            "merged": "-",
            "moved_count": lambda count: count == 2,
            "kept_count": 8,
        },
    ),
    "release": (
        lambda: CALLS.release("9-f", 777, counts=True, dead=False, reason="openai answered 503"),
        {
            "session": b"user-42",
            "now_ms": NOW_MS,
            "fence": "9-f",
            "backoff_ms": 777,
            "counts": 1,
            "max_attempts": 20,
            "reason": "openai answered 503",
        },
    ),
    "requeue": (
        lambda: CALLS.requeue(again=True),
        {"session": b"user-42", "now_ms": NOW_MS, "again": 1},
    ),
    "claim_eviction": (
        CALLS.claim_eviction,
        {"session": b"user-42", "now_ms": NOW_MS, "lease_ms": 56_789, "nonce": nonce},
    ),
    "evict": (
        lambda: CALLS.evict(View(CONTEXT, {b"ids_a": b"c and so on"}, [])),
        {"session": b"user-42", "appends": b"c and so on"},
    ),
    "queue_eviction": (
        lambda: queue_calls.queue_eviction(
            SHARD, [(SESSION, 55), (SESSION, 66)], EvictionReason.LIMIT, lambda: NOW_MS, True, 77
        ),
        {"now_ms": NOW_MS, "reason": "limit", "kept": 1, "soon_ms": 77},
    ),
    "sweep": (
        lambda: queue_calls.sweep(SHARD, [SESSION, SESSION], SETTINGS, lambda: NOW_MS),
        {"now_ms": NOW_MS, "max_attempts": 19, "first_ms": 300_000, "longest_ms": 86_400_000},
    ),
}
TAILS = {
    "commit": [b"pinned:32", 1, *ORIGINALS_TAIL, b"summary:5", b"summary:8"],
    "queue_eviction": [b"user-42", 55, b"user-42", 66],
    "sweep": [b"user-42", b"user-42"],
}


@pytest.mark.parametrize("name", CALLED)
def test_each_key_and_argument_is_at_its_place_in_the_header(name: str) -> None:
    head = header(scripts.load(name).source.decode())
    build, expected = CALLED[name]
    call = build()
    assert call.script is scripts.load(name)
    word, sha, count, *rest = call.commands[0]
    assert (word, sha) == ("EVALSHA", scripts.load(name).sha)
    keys, arguments = rest[: int(count)], rest[int(count) :]
    named = {getattr(place, field): field for place in (SESSION, SHARD) for field in place.__slots__}
    of_sessions = {"queue_eviction": 2 * ["messages", "state", "originals", "vectors"], "sweep": 2 * ["state"]}
    assert [named[key] for key in keys] == head.keys + of_sessions.get(name, [])
    assert list(expected) == head.arguments
    for argument, given in zip(head.arguments, arguments, strict=False):
        wanted = expected[argument]
        assert wanted(given) if callable(wanted) else given == wanted, argument
    assert arguments[len(expected) :] == TAILS.get(name, [])
    values = [value for value in expected.values() if not callable(value)]
    assert len(set(values)) == len(values), "or two arguments could change places unseen"


def test_a_claim_is_followed_by_a_read_of_the_session() -> None:
    assert CALLS.claim().commands[1:] == (("HGETALL", SESSION.state), ("LRANGE", SESSION.messages, 0, -1))


def test_a_missing_argument_is_a_dash_and_a_missing_part_has_length_0() -> None:
    bare = QueueCalls(SESSION, Settings())
    of_one = (bare.claim(), bare.extend("f"), bare.requeue(again=False), bare.claim_eviction())
    for call in (*of_one, queue_calls.sweep(SHARD, [], SETTINGS, None)):
        assert call.script is not None
        names = header(call.script.source.decode()).arguments
        arguments = dict(zip(names, call.commands[0][3 + int(call.commands[0][2]) :], strict=False))
        assert arguments["now_ms"] == "-"
    names = header(scripts.load("commit").source.decode()).arguments
    commit = bare.commit(JOB, MESSAGES[:1], None)
    arguments = dict(zip(names, commit.commands[0][3 + int(commit.commands[0][2]) :], strict=False))
    assert [arguments[name] for name in ("kept_count", "summary_field", "summary")] == [0, "-", "-"]
    dead = bare.release("f", 1, counts=False, dead=True).commands[0][-3:]
    assert dead == (0, 0, "-")

"""What lies in Redis, held against the model field by field, and against the invariants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from model_check.model import INDEXES, Model, SessionModel
from redismem.inspection import check
from redismem.inspection.invariants import Stored, violations
from redismem.messages import decode_messages
from redismem.protocol.call import Call, Command
from redismem.protocol.keys import Keys

NAMES = ("a", "b", "c")
COMPARED = {
    b"counters",
    b"epoch",
    b"queued",
    b"fence",
    b"attempts",
    b"committed",
    b"summaries_count",
    b"with_originals",
    b"dropped_seq",
}
"""The fields of a state that the model knows; `param:` and `summary:` are compared too."""


@dataclass
class Seen:
    """All of the shard, read at one moment."""

    sessions: dict[str, Stored]
    originals: dict[str, list[str]]
    indexes: dict[str, dict[str, int]]


def reading(keys: Keys) -> Call[Seen]:
    """Reads the shard in one transaction."""
    (shard,) = keys.shards()
    sessions = check.together([check.stored(keys.session(name)) for name in NAMES])
    commands: tuple[Command, ...] = (
        *sessions.commands,
        *(("LRANGE", keys.session(name).originals, 0, -1) for name in NAMES),
        *(("ZRANGE", getattr(shard, index), 0, -1, "WITHSCORES") for index in INDEXES),
    )

    def decode(*answers: Any) -> Seen:
        rest = iter(answers[len(sessions.commands) :])
        return Seen(
            dict(zip(NAMES, sessions.decode(*answers[: len(sessions.commands)]), strict=True)),
            {name: _contents(next(rest)) for name in NAMES},
            {index: dict(_scores(next(rest))) for index in INDEXES},
        )

    return Call(NAMES[0], commands, decode)


def compare(seen: Seen, model: Model) -> None:
    """Raises AssertionError for what is not as the model says, or not as the invariants want it."""
    for name in NAMES:
        assert list(violations(name, seen.sessions[name], model.settings)) == []
        assert seen.originals[name] == model.originals.get(name, [])
        session = model.sessions.get(name)
        if session is None:
            assert (seen.sessions[name].fields, seen.sessions[name].elements) == ({}, []), f"session {name} is there"
        else:
            _compare_session(name, seen.sessions[name], session)
    for index in INDEXES:
        assert seen.indexes[index] == model.indexes[index], f"{index}: {seen.indexes[index]}, {model.indexes[index]}"


def _compare_session(name: str, seen: Stored, session: SessionModel) -> None:
    assert seen.fields, f"session {name} is gone"
    wanted = _fields(session)
    given = {field: value for field, value in seen.fields.items() if field in COMPARED or b":" in field}
    assert given == wanted, f"session {name}: {set(given.items()) ^ set(wanted.items())}"
    assert _contents(seen.elements) == [content for content, _ in session.window]
    covered = [seq for summary in session.summaries for seq in range(summary.first_seq, summary.last_seq + 1)]
    assert sorted([*covered, *session.unsummarised]) == list(range(1, session.first_seq))


def _fields(session: SessionModel) -> dict[bytes, bytes]:
    """Gives the state as it should be stored."""
    tokens = sum(tokens for _, tokens in session.window)
    counters = (
        *(session.first_seq, session.total, tokens),
        *(session.active_ms, session.expires_ms, session.evicting),
    )
    expected: dict[str, Any] = {
        "counters": " ".join(["v1", *(str(number) for number in counters if number is not None)]),
        "epoch": session.epoch,
        "queued": session.queued,
        "fence": session.fence if session.holder is not None else None,
        "attempts": session.attempts,
        "committed": session.committed_fence or None,
        "summaries_count": len(session.summaries) if session.committed else None,
        "with_originals": 1 if session.with_originals else None,
        "dropped_seq": session.dropped_seq,
    }
    expected |= {f"param:{param}": chr(value) for param, value in session.params.items()}
    wanted = {field.encode(): str(value).encode() for field, value in expected.items() if value is not None}
    return wanted | {b"summary:%d" % summary.first_seq: summary.encode() for summary in session.summaries}


def _contents(elements: list[bytes]) -> list[Any]:
    return [message.content for message in decode_messages(elements, 1, "")]


def _scores(entries: list[bytes]) -> Iterator[tuple[str, int]]:
    pairs = iter(entries)
    return ((member.decode(), int(score)) for member, score in zip(pairs, pairs, strict=True))

"""Compare Redis with the model field by field, and check the invariants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from model_check.kept import KNOWN
from model_check.model import INDEXES, Model
from model_check.session import SessionModel
from redismem.inspection import check
from redismem.inspection.invariants import StoredSession, violations
from redismem.messages.decoding import decode_messages, split_elements
from redismem.messages.values import Undecodable
from redismem.originals.blocks import decode_block
from redismem.protocol import replies
from redismem.protocol.call import Call, Command
from redismem.protocol.keys import Keys
from redismem.protocol.layout import LEFT_IDS, PINNED, pinned_seqs

NAMES = ("a", "b", "c")
COMPARED = {
    b"counters",
    b"epoch",
    b"queued",
    b"fence",
    b"evictor",
    b"attempts",
    b"failure",
    b"deaths",
    b"committed",
    b"summaries_count",
    b"with_originals",
    b"dropped_seq",
    b"pins",
    b"sketch",
}
"""The state fields that the model predicts, besides the `param:` and `summary:` fields."""


@dataclass
class Seen:
    """The whole shard, read at one moment."""

    sessions: dict[str, StoredSession]
    originals: dict[str, dict[int, str | None]]
    indexes: dict[str, dict[str, int]]
    pauses: dict[str, bytes]
    pauses_left_ms: int


def read_shard(keys: Keys) -> Call[Seen]:
    """The call that reads the shard in one transaction."""
    (shard,) = keys.shards()
    sessions = check.join([check.read_stored(keys.session(name)) for name in NAMES])
    commands: tuple[Command, ...] = (
        *sessions.commands,
        *(("HGETALL", keys.session(name).originals) for name in NAMES),
        *(("ZRANGE", getattr(shard, index), 0, -1, "WITHSCORES") for index in INDEXES),
        *(("HGETALL", keys.providers), ("PTTL", keys.providers)),
    )

    def decode(*answers: Any) -> Seen:
        rest = iter(answers[len(sessions.commands) :])
        return Seen(
            dict(zip(NAMES, sessions.decode(*answers[: len(sessions.commands)]), strict=True)),
            {name: dict(_originals(replies.fields(next(rest)))) for name in NAMES},
            {index: dict(_scores(next(rest))) for index in INDEXES},
            {provider.decode(): value for provider, value in replies.fields(next(rest)).items()},
            next(rest),
        )

    return Call(NAMES[0], commands, decode, sessions.script)


def compare(seen: Seen, model: Model) -> None:
    """Assert that Redis equals the model and satisfies the invariants."""
    for name in NAMES:
        seen.sessions[name].dictionaries = KNOWN
        broken = list(violations(name, seen.sessions[name], model.settings))
        assert broken == [], broken
        assert seen.originals[name] == model.originals.get(name, {})
        session = model.sessions.get(name)
        if session is None:
            assert (seen.sessions[name].fields, seen.sessions[name].elements) == ({}, []), f"session {name} is there"
        else:
            _compare_session(name, seen.sessions[name], session)
    for index in INDEXES:
        assert seen.indexes[index] == model.indexes[index], f"{index}: {seen.indexes[index]}, {model.indexes[index]}"
    assert seen.pauses == model.pauses
    assert (seen.pauses_left_ms > 0) == bool(model.pauses), "an unused pause expires"


def _compare_session(name: str, seen: StoredSession, session: SessionModel) -> None:
    assert seen.fields, f"session {name} is gone"
    expected = _fields(session)
    moved = {field: value for field, value in seen.fields.items() if field.startswith(PINNED)}
    given = {field: value for field, value in seen.fields.items() if field in COMPARED or b":" in field}
    given = {field: value for field, value in given.items() if not field.startswith(LEFT_IDS)}
    given = {field: value for field, value in given.items() if field not in moved}
    assert given == expected, f"session {name}: {set(given.items()) ^ set(expected.items())}"
    assert _contents(seen.elements) == [entry.content for entry in session.elements]
    pinned = {seq: entry.content for seq, entry in session.pinned.items() if seq < session.first_seq}
    stored = {seq: content for field, joined in moved.items() for seq, content in _moved_messages(field, joined)}
    assert stored == pinned
    covered = [seq for summary in session.summaries for seq in range(summary.first_seq, summary.last_seq + 1)]
    assert sorted([*covered, *session.unsummarised]) == list(range(1, session.first_seq))


def _fields(session: SessionModel) -> dict[bytes, bytes]:
    """Return the state fields that Redis should hold."""
    tokens = sum(entry.tokens for entry in session.window)
    uncounted = len(session.elements) - len(session.window)
    hidden = len(session.places) - len(session.elements)
    expires = f"{session.expires_ms}+{uncounted}" if uncounted else session.expires_ms
    expires = f"{expires}-{hidden}" if hidden else expires
    expires = f"{expires}~{session.policy}" if session.policy else expires
    counters = (*(session.first_seq, session.total, tokens), *(session.active_ms, expires, session.evicting))
    sizes = [entry.size for entry in session.pinned.values()]
    expected: dict[str, Any] = {
        "counters": " ".join(["v1", *(str(number) for number in counters if number is not None)]),
        "epoch": session.epoch,
        "queued": session.queued,
        "fence": session.fence if session.holder is not None else None,
        "evictor": session.evictor,
        "attempts": session.attempts,
        "failure": None if session.failure is None else " ".join(map(str, session.failure)),
        "deaths": session.deaths,
        "committed": session.committed_fence or None,
        "summaries_count": len(session.summaries) if session.has_count else None,
        "with_originals": 1 if session.with_originals else None,
        "dropped_seq": session.dropped_seq,
        "sketch": session.sketch.decode() or None,
        "pins": f"{len(sizes)} {sum(sizes)}" if session.pinned_once else None,
    }
    expected |= {f"param:{param}": chr(value) for param, value in session.params.items()}
    fields = {field.encode(): str(value).encode() for field, value in expected.items() if value is not None}
    return fields | {b"summary:%d" % summary.first_seq: summary.encode() for summary in session.summaries}


def _contents(elements: list[bytes]) -> list[Any]:
    return [message.content for message in decode_messages(elements, 1, "")]


def _originals(stored: Mapping[bytes, bytes]) -> Iterator[tuple[int, Any]]:
    for field, block in stored.items():
        if field.isdigit():
            try:
                first_seq, elements = decode_block(int(field), block, KNOWN)
            except Undecodable:
                raise AssertionError(f"block {int(field)} of the originals cannot be read") from None
            yield from enumerate(_contents(elements), first_seq)


def _moved_messages(field: bytes, joined: bytes) -> Iterator[tuple[int, Any]]:
    seqs = pinned_seqs(field)
    return zip(seqs, _contents(split_elements(joined, len(seqs))), strict=True)


def _scores(entries: list[bytes]) -> Iterator[tuple[str, int]]:
    pairs = iter(entries)
    return ((member.decode(), int(score)) for member, score in zip(pairs, pairs, strict=True))

"""Check every session of a namespace against the invariants. Never writes.

Each session is read in one transaction, so a concurrent write never looks like a violation. A Redis whose memory is
full refuses transactions: then a session whose originals change before both of its readings may look like one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from redismem.errors import CorruptSession
from redismem.events import Op
from redismem.inspection.invariants import StoredSession, Violation, violations
from redismem.inspection.turn_rules import StoredTurns, turn_reads
from redismem.protocol import replies
from redismem.protocol.call import Call, Command, script_call
from redismem.protocol.keys import SessionKeys, ShardKeys, is_session_id
from redismem.protocol.layout import INDEXES
from redismem.protocol.namespace import calls as namespace_calls
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

_PAGE_COUNT = 200
_TOGETHER_COUNT = 16
# A key that moves to another cluster node keeps its remaining time to live, so the duration of the move is added to
# it, until an append sets the session's expiry again.
_MOVED_LATE_MS = 60_000
_PLACES = (*INDEXES, "owners", "turns")


def read_stored(keys: SessionKeys) -> Call[StoredSession]:
    """Build a call that reads every key of a session. Raises CorruptSession if a key has the wrong type."""
    shard = keys.shard
    others: tuple[Command, ...] = (
        ("HGETALL", keys.state),
        ("LRANGE", keys.messages, 0, -1),
        ("PEXPIRETIME", keys.state),
        ("PEXPIRETIME", keys.messages),
        ("PEXPIRETIME", keys.originals),
        *turn_reads(keys),
        *(("ZSCORE", index, keys.session) for index in shard.all_indexes),
        ("GET", shard.fences),
    )

    def decode(*answers: Any) -> StoredSession:
        originals, state, elements, state_ms, messages_ms, originals_ms, log, ended, *more, fences = answers
        turns, scores = StoredTurns(log or b"", ended or b"", *more[:3]), more[3:]
        places = {name: None if score is None else float(score) for name, score in zip(_PLACES, scores, strict=True)}
        times_ms = (state_ms, messages_ms, originals_ms)
        stored = replies.fields(state), elements, dict(replies.fields(originals))
        return StoredSession(*stored, *times_ms, turns, places, int(fences or 0))

    return script_call(Op.LOOK, keys, decode, {}, script="read_originals", after=others, is_separable=True)


def join(calls: list[Call[StoredSession]]) -> Call[list[StoredSession]]:
    """Merge the calls for several sessions of one shard into one call, which is one transaction."""
    commands = tuple(command for call in calls for command in call.commands)
    count = len(calls[0].commands)

    def decode(*answers: Any) -> list[StoredSession]:
        return [call.decode(*answers[at * count : (at + 1) * count]) for at, call in enumerate(calls)]

    return Call(calls[0].session_id, commands, decode, calls[0].script, is_separable=True)


async def check(
    store: Store, also: Iterable[str] = (), on_checked: Callable[[int], None] | None = None
) -> AsyncIterator[Violation]:
    """Yield every violation in the namespace: of each indexed session and of each session id in `also`.

    A session with a violation is read again, and reported only if the violation persists. After each batch,
    `on_checked` receives the number of sessions in that batch. Raises StoreUnavailable.
    """
    named: dict[int, set[str]] = {}
    for session_id in also:
        named.setdefault(store.keys.shard_of(session_id), set()).add(session_id)
    for number, shard in enumerate(store.keys.shards()):
        indexed = await _load_indexed(store, shard)
        for foreign in sorted(entry for entry in indexed if not is_session_id(entry)):
            yield Violation(foreign, "I12", "an index of the shard holds it, but it is not a session id")
        session_ids = sorted(filter(is_session_id, indexed | named.get(number, set())))
        for at in range(0, len(session_ids), _TOGETHER_COUNT):
            part = session_ids[at : at + _TOGETHER_COUNT]
            for session_id in await _find_suspects(store, part):
                for violation in await check_session(store, session_id):
                    yield violation
            if on_checked is not None:
                on_checked(len(part))


async def check_session(store: Store, session_id: str) -> list[Violation]:
    """Return the violations of one session. Raises StoreUnavailable."""
    try:
        seen = await store.run(read_stored(store.keys.session(session_id)))
    except CorruptSession as unreadable:
        return [Violation(session_id, "I1", str(unreadable))]
    seen.dictionaries = await load_dictionaries(store, seen.originals.values())
    return _find_violations(store, session_id, seen)


def _find_violations(store: Store, session_id: str, seen: StoredSession) -> list[Violation]:
    late_ms = 0 if store.availability.breakers is None else _MOVED_LATE_MS
    return list(violations(session_id, seen, store.settings, late_ms=late_ms))


async def _find_suspects(store: Store, session_ids: list[str]) -> list[str]:
    calls = [read_stored(store.keys.session(session_id)) for session_id in session_ids]
    try:
        sessions = await store.run(join(calls))
    except CorruptSession:
        return session_ids
    loaded = await load_dictionaries(store, (value for seen in sessions for value in seen.originals.values()))
    for seen in sessions:
        seen.dictionaries = loaded
    pairs = zip(session_ids, sessions, strict=True)
    return [session_id for session_id, seen in pairs if _find_violations(store, session_id, seen)]


async def _load_indexed(store: Store, shard: ShardKeys) -> set[str]:
    """Return the session ids in the shard's indexes, read page by page."""
    session_ids: set[str] = set()
    for index in shard.all_indexes:
        cursor = 0
        while True:
            command = ("ZSCAN", index, cursor, "COUNT", _PAGE_COUNT)
            cursor, page = await store.run(Call(None, (command,), lambda reply: (int(reply[0]), reply[1])))
            session_ids.update(entry.session_id for entry in namespace_calls.entries(page))
            if cursor == 0:
                break
    return session_ids

"""Whether what is stored agrees with itself: every session of a namespace against the invariants. Never writes.

Each session is read in one transaction, so writers in between do no harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from redismem.errors import CorruptSession
from redismem.inspection.invariants import Stored, Violation, violations
from redismem.protocol import replies
from redismem.protocol.call import Call, Command
from redismem.protocol.keys import SessionKeys, ShardKeys, is_session_id
from redismem.protocol.layout import INDEXES
from redismem.protocol.namespace import calls as namespace_calls
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

_PAGE_COUNT = 200
_TOGETHER_COUNT = 16
# A key that moves to another node of a cluster takes the time along that it has left, and lives so much longer as its
# way has taken, until an append sets the session's expiry anew.
_MOVED_LATE_MS = 60_000


def stored(keys: SessionKeys) -> Call[Stored]:
    """Raises CorruptSession if a key has a foreign type."""
    shard = keys.shard
    commands: tuple[Command, ...] = (
        ("HGETALL", keys.state),
        ("LRANGE", keys.messages, 0, -1),
        ("HGETALL", keys.originals),
        ("PEXPIRETIME", keys.state),
        ("PEXPIRETIME", keys.messages),
        ("PEXPIRETIME", keys.originals),
        ("PEXPIRETIME", keys.vectors),
        *(("ZSCORE", getattr(shard, index), keys.session) for index in INDEXES),
        ("GET", shard.fences),
    )

    def decode(*answers: Any) -> Stored:
        state, elements, originals, state_ms, messages_ms, originals_ms, vectors_ms, *scores, fences = answers
        places = {name: None if score is None else float(score) for name, score in zip(INDEXES, scores, strict=True)}
        times_ms = (state_ms, messages_ms, originals_ms, vectors_ms)
        return Stored(
            replies.fields(state), elements, dict(replies.fields(originals)), *times_ms, places, int(fences or 0)
        )

    return Call(keys.session_id, commands, decode)


def together(calls: list[Call[Stored]]) -> Call[list[Stored]]:
    """Several sessions of one shard in one transaction."""
    commands = tuple(command for call in calls for command in call.commands)
    count = len(calls[0].commands)

    def decode(*answers: Any) -> list[Stored]:
        return [call.decode(*answers[at * count : (at + 1) * count]) for at, call in enumerate(calls)]

    return Call(calls[0].session_id, commands, decode)


async def check(
    store: Store, also: Iterable[str] = (), on_checked: Callable[[int], None] | None = None
) -> AsyncIterator[Violation]:
    """Every violation in the namespace, of the sessions in its indexes and those named in `also`.

    A session that looks wrong is read once more before it is reported. `on_checked` is told after each step how many
    sessions that step has looked at. Raises StoreUnavailable.
    """
    others: dict[int, set[str]] = {}
    for session_id in also:
        others.setdefault(store.keys.shard_of(session_id), set()).add(session_id)
    for number, shard in enumerate(store.keys.shards()):
        indexed = await _indexed(store, shard)
        for foreign in sorted(each for each in indexed if not is_session_id(each)):
            yield Violation(foreign, "I12", "an index of its shard holds it, and it is no session id")
        session_ids = sorted(filter(is_session_id, indexed | others.get(number, set())))
        for at in range(0, len(session_ids), _TOGETHER_COUNT):
            part = session_ids[at : at + _TOGETHER_COUNT]
            for session_id in await _suspects(store, part):
                for violation in await check_session(store, session_id):
                    yield violation
            if on_checked is not None:
                on_checked(len(part))


async def check_session(store: Store, session_id: str) -> list[Violation]:
    """The violations of one session. Raises StoreUnavailable."""
    try:
        seen = await store.run(stored(store.keys.session(session_id)))
    except CorruptSession as unreadable:
        return [Violation(session_id, "I1", str(unreadable))]
    seen.dictionaries = await load_dictionaries(store, seen.originals.values())
    return _wrong(store, session_id, seen)


def _wrong(store: Store, session_id: str, seen: Stored) -> list[Violation]:
    late_ms = 0 if store.breakers is None else _MOVED_LATE_MS
    return list(violations(session_id, seen, store.settings, late_ms=late_ms))


async def _suspects(store: Store, session_ids: list[str]) -> list[str]:
    calls = [stored(store.keys.session(session_id)) for session_id in session_ids]
    try:
        found = await store.run(together(calls))
    except CorruptSession:
        return session_ids
    known = await load_dictionaries(store, (value for seen in found for value in seen.originals.values()))
    for seen in found:
        seen.dictionaries = known
    return [session_id for session_id, seen in zip(session_ids, found, strict=True) if _wrong(store, session_id, seen)]


async def _indexed(store: Store, shard: ShardKeys) -> set[str]:
    """The sessions that the shard's indexes name, read a page at a time."""
    found: set[str] = set()
    for index in (getattr(shard, name) for name in INDEXES):
        cursor = 0
        while True:
            command = ("ZSCAN", index, cursor, "COUNT", _PAGE_COUNT)
            cursor, page = await store.run(Call(None, (command,), lambda reply: (int(reply[0]), reply[1])))
            found.update(entry.session_id for entry in namespace_calls.entries(page))
            if cursor == 0:
                break
    return found

"""Sessions as an operator sees them: a page of them with their numbers, and one of them whole. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redismem.context import Context
from redismem.errors import CorruptSession, SessionNotFound, UnsupportedFormat
from redismem.info import SessionEntry, SessionInfo
from redismem.messages.decoding import is_gap
from redismem.messages.message import Message
from redismem.protocol import replies
from redismem.protocol.call import Call, independent
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.store.store import Store

Info = SessionInfo | str
"""The numbers of a session, or why there are none: `gone`, `unreadable`, `of another layout`."""

_PAGE_COUNT = 500


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the live sessions, the last active first."""

    entries: Sequence[SessionEntry]
    infos: Sequence[Info]
    cursor: str | None
    count: int
    """Live sessions in all."""
    room: int
    """How many more the session limit leaves room for."""
    now_ms: int


async def list_sessions(store: Store, limit: int, cursor: str | None = None) -> Listing:
    """Raises ValueError for a cursor that no page gave, StoreUnavailable."""
    now_ms = await store.server_time_ms()
    since_ms = now_ms - store.settings.idle_timeout_ms
    page = await store.run(namespace_calls.page(store.keys, limit, cursor, since_ms))
    count = await store.run(namespace_calls.count(store.keys, since_ms))
    infos = await infos_of(store, page.sessions)
    room = max(0, store.session_limit - count)
    return Listing(page.sessions, infos, page.cursor, count, room, now_ms)


async def infos_of(store: Store, entries: Sequence[SessionEntry]) -> list[Info]:
    """The numbers of each session, in one round trip. Raises StoreUnavailable."""
    return await store.run(_infos(store.keys, entries))


def _infos(keys: Keys, entries: Sequence[SessionEntry]) -> Call[list[Info]]:
    def decode(*answers: Any) -> list[Info]:
        return [info_of(entry.session_id, answer) for entry, answer in zip(entries, answers, strict=True)]

    return independent(tuple(("HGETALL", keys.session(entry.session_id).state) for entry in entries), decode)


def info_of(session_id: str, answer: Any) -> Info:
    """The numbers in the answer to a HGETALL of a session's state, or why there are none."""
    try:
        return replies.info(session_id, replies.fields(answer)) or "gone"
    except CorruptSession:
        return "unreadable"
    except UnsupportedFormat:
        return "of another layout"


def hash_of(session_id: str) -> str:
    """What logs call a session."""
    return session_hash(session_id)


def key_of(store: Store, session_id: str) -> str:
    """The key of its state, as `redis-cli` wants it."""
    return store.keys.session(session_id).state.decode()


def numbers_of(info: Info) -> dict[str, Any]:
    """The numbers of a session as JSON values, beside its id and its activity."""
    if isinstance(info, str):
        return {"state": info}
    return {"state": "live"} | {
        name: value for name, value in asdict(info).items() if name not in ("session_id", "active_ms")
    }


async def look(store: Store, session_id: str, limit: int | None = None) -> tuple[SessionInfo, Context]:
    """A session and its context, or its newest `limit` messages; an unreadable one is not put into quarantine.

    Raises SessionNotFound, CorruptSession, StoreUnavailable.
    """
    calls = store.session_calls(session_id)
    info = await store.run(calls.info())
    if info is None:
        raise SessionNotFound(f"there is no such session in namespace {store.keys.namespace}", session_id)
    return info, await store.run(calls.read(limit))


async def originals_of(store: Store, context: Context) -> list[Message]:
    """The kept messages before this window, oldest first. What cannot be read of them is missing, and stays as it is.

    Raises CorruptSession, UnsupportedFormat, StoreUnavailable.
    """
    calls, found, before = store.session_calls(context.session_id), list[Message](), context.first_seq
    while before > 1:
        page = await store.run(calls.page(_PAGE_COUNT, before, include_originals=True))
        if page is None or page.epoch != context.epoch:
            break
        found = page.messages() + found
        before = page.start_seq
        if page.count < _PAGE_COUNT:
            break
    pinned = {message.seq for message in context.pinned}
    return [message for message in found if not is_gap(message) and message.seq not in pinned]


async def keys_left(store: Store, session_id: str) -> int:
    """How many of a session's keys exist. Raises StoreUnavailable."""
    keys = store.keys.session(session_id)
    commands = tuple(("EXISTS", key) for key in (keys.messages, keys.state, keys.originals))
    return await store.run(Call(session_id, commands, lambda *found: sum(map(int, found))))

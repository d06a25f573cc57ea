"""Sessions for operators: a page of sessions with their numbers, or one whole session. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redismem.context.context import Context
from redismem.context.info import SessionEntry, SessionInfo
from redismem.errors import CorruptSession, SessionNotFound, UnsupportedFormat
from redismem.messages.decoding import is_gap
from redismem.messages.message import Message
from redismem.protocol import replies
from redismem.protocol.call import Call, independent
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.owners import check_owner
from redismem.protocol.session.page_reads import PageRange
from redismem.protocol.session.pages import Window
from redismem.session.listing import list_owned
from redismem.store.pages import read_page
from redismem.store.sessions import read_sessions
from redismem.store.store import Store

Info = SessionInfo | str
"""The numbers of a session, or the reason they are missing: `gone`, `unreadable`, `of another layout`."""

_PAGE_COUNT = 500
_TOGETHER_COUNT = 100


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the live sessions, most recently active first."""

    entries: Sequence[SessionEntry]
    infos: Sequence[Info]
    cursor: str | None
    count: int
    """The number of all live sessions."""
    room: int
    """The number of sessions that the namespace can still take before it reaches the session limit."""
    now_ms: int


async def list_sessions(store: Store, limit: int, cursor: str | None = None, owner: str | None = None) -> Listing:
    """Return a page of live sessions, or with `owner` of all those of an owner, each with its title.

    Raises:
        InvalidSessionId: The owner is invalid.
        ValueError: The cursor is from no page.
        StoreUnavailable: Redis does not answer.
    """
    now_ms = await store.server_time_ms()
    since_ms = now_ms - store.settings.idle_timeout_ms
    if owner is None:
        page = await read_sessions(store, limit, cursor, since_ms)
    else:
        page = await list_owned(store, check_owner(owner), limit, cursor, newest=True)
    count = await store.run(namespace_calls.count(store.keys, since_ms))
    infos = await infos_of(store, page.sessions)
    room = max(0, store.agreement.session_limit - count)
    return Listing(page.sessions, infos, page.cursor, count, room, now_ms)


async def infos_of(store: Store, entries: Sequence[SessionEntry]) -> list[Info]:
    """Return the numbers of each session. Raises StoreUnavailable."""
    groups = [entries[at : at + _TOGETHER_COUNT] for at in range(0, len(entries), _TOGETHER_COUNT)]
    return [info for group in groups for info in await store.run(_infos(store.keys, group))]


def _infos(keys: Keys, entries: Sequence[SessionEntry]) -> Call[list[Info]]:
    def decode(*answers: Any) -> list[Info]:
        return [info_of(entry.session_id, answer) for entry, answer in zip(entries, answers, strict=True)]

    return independent(tuple(("HGETALL", keys.session(entry.session_id).state) for entry in entries), decode)


def info_of(session_id: str, answer: Any) -> Info:
    """Return the numbers in a HGETALL answer of a session's state, or the reason they are missing."""
    try:
        return replies.info(session_id, replies.fields(answer)) or "gone"
    except CorruptSession:
        return "unreadable"
    except UnsupportedFormat:
        return "of another layout"


def hash_of(session_id: str) -> str:
    """Return the hash that stands for the session in the logs."""
    return session_hash(session_id)


def key_of(store: Store, session_id: str) -> str:
    """Return the key of a session's state, as text for `redis-cli`."""
    return store.keys.session(session_id).state.decode()


def numbers_of(info: Info) -> dict[str, Any]:
    """Return the numbers of a session as JSON values, without its id, its last activity and its title."""
    if isinstance(info, str):
        return {"state": info}
    return {"state": "live"} | {
        name: value for name, value in asdict(info).items() if name not in ("session_id", "active_ms", "title")
    }


async def look(store: Store, session_id: str, limit: int | None = None) -> tuple[SessionInfo, Context]:
    """Return a session's numbers and its context; with `limit`, only the newest messages of it. Quarantines nothing.

    Raises SessionNotFound, CorruptSession, StoreUnavailable.
    """
    calls = store.session_calls(session_id)
    info = await store.run(calls.info())
    if info is None:
        raise SessionNotFound(f"there is no such session in namespace {store.keys.namespace}", session_id)
    return info, await store.run(calls.read(limit))


async def originals_of(store: Store, context: Context) -> list[Message]:
    """Return the originals before this window, oldest first. Skips unreadable blocks and leaves them as they are.

    Raises CorruptSession, UnsupportedFormat, StoreUnavailable.
    """
    keys, originals, before = store.keys.session(context.session_id), list[Message](), context.first_seq
    window = Window(context.epoch, context.first_seq, context.last_seq)
    while before > 1:
        page = await read_page(store.run, keys, PageRange(_PAGE_COUNT, before, True, window))
        if page is None or page.epoch != context.epoch:
            break
        originals = page.messages() + originals
        before = page.start_seq
        if page.count < _PAGE_COUNT:
            break
    pinned = {message.seq for message in context.pinned}
    return [message for message in originals if not is_gap(message) and message.seq not in pinned]

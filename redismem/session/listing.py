"""List sessions with titles and the beginnings of their last messages, and the sessions of one owner."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.context.info import SessionEntry, SessionPage
from redismem.errors import UnsupportedFormat
from redismem.messages.decoding import decode_messages, is_gap
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, decode_block, unpacked_bytes
from redismem.originals.dictionaries import Dictionaries
from redismem.protocol.keys import is_session_id
from redismem.protocol.namespace import described as calls
from redismem.protocol.namespace.described import STATES_COUNT, Described, Ends, Members
from redismem.protocol.namespace.sessions import check_limit, decode_cursor, encode_cursor
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store
from redismem.text.beginnings import last_of, title_of

# A first block that unpacks to more is left out: titles are no reason to hold much memory.
_UNPACKED_BYTES = 4 << 20
_BLOCKS_COUNT = 16


async def list_owned(store: Store, owner: str, limit: int, cursor: str | None, *, newest: bool = False) -> SessionPage:
    """Return a page of the sessions of an owner, most recently active first; with `newest` also their titles and texts.

    It reads the states of all sessions of the owner, 256 per round trip, and messages of those on the page.

    Raises:
        InvalidSessionId: The owner is invalid.
        ValueError: The cursor was not returned by a page, or the limit is out of range.
        StoreUnavailable: Redis did not answer in time.
    """
    check_limit(limit)
    found = await _newest(store, owner, limit + 1, None if cursor is None else decode_cursor(cursor))
    page = found[:limit]
    entries = [SessionEntry(described.keys.session_id, described.active_ms) for described in page]
    following = encode_cursor(entries[-1]) if len(found) > limit else None
    return SessionPage(await _describe(store, page) if newest else entries, following)


async def describe(store: Store, page: SessionPage, owner: str | None = None) -> SessionPage:
    """Return the page with titles and texts. Sessions that have ended, or that cannot be read, have none.

    With an owner, neither have sessions that belong to another one by now.

    Raises:
        StoreUnavailable: Redis did not answer in time.
    """
    keys = [store.keys.session(entry.session_id) for entry in page.sessions if is_session_id(entry.session_id)]
    states = list[Described]()
    for at in range(0, len(keys), STATES_COUNT):
        read: list[Described] = await store.run(calls.states(keys[at : at + STATES_COUNT], owner))
        states += read
    found = {entry.session_id: entry for entry in await _describe(store, states)}
    named = [replace(found.get(each.session_id, each), active_ms=each.active_ms) for each in page.sessions]
    return replace(page, sessions=named)


async def _newest(store: Store, owner: str, count: int, after: tuple[int, bytes] | None) -> list[Described]:
    """Return the first sessions of the owner after a place in the list."""
    members, newest = Members(store.keys, owner), list[Described]()
    while (call := members.next_call()) is not None:
        found = await store.run(call)
        for at in range(0, len(found), STATES_COUNT):
            states: list[Described] = await store.run(calls.states(found[at : at + STATES_COUNT], owner))
            newest += [described for described in states if after is None or described.order < after]
            newest = heapq.nlargest(count, newest, key=lambda described: described.order)
    return newest


async def _describe(store: Store, page: Sequence[Described]) -> list[SessionEntry]:
    """Return the entries of these sessions, without those that have ended meanwhile.

    The messages of one group are dropped before those of the next are read.
    """
    return [entry for group in calls.in_groups(page) for entry in await _describe_group(store, group)]


async def _describe_group(store: Store, page: Sequence[Described]) -> list[SessionEntry]:
    ends: list[Ends] = await store.run(calls.ends(page))
    blocks = await _first_blocks(store, [described for described, end in zip(page, ends, strict=True) if end.has_block])
    kept = await _still_there(store, list(zip(page, ends, strict=True)))
    dictionaries = await load_dictionaries(store, blocks.values())
    size = sum(len(element) for _, end in kept for element in (*end.first, *end.last))
    size += sum(map(unpacked_bytes, blocks.values()))
    work = partial(_entries, kept, blocks, dictionaries)
    return await run_apart(store.transport, work, is_much=size > LARGE_BYTES)


async def _still_there(store: Store, page: Sequence[tuple[Described, Ends]]) -> list[tuple[Described, Ends]]:
    """Return the sessions that have the epoch of their state, after all else was read.

    So each message was read in that life of the session which belongs to the owner.
    """
    epochs: list[bytes | None] = await store.run(calls.epochs([described.keys for described, _ in page]))
    return [pair for pair, epoch in zip(page, epochs, strict=True) if epoch == pair[0].epoch]


async def _first_blocks(store: Store, sessions: Sequence[Described]) -> dict[str, bytes]:
    """Return the first blocks of originals, by session, without those that are too large."""
    found: dict[str, bytes] = {}
    for at in range(0, len(sessions), _BLOCKS_COUNT):
        group = [described.keys for described in sessions[at : at + _BLOCKS_COUNT]]
        read: list[bytes | None] = await store.run(calls.first_blocks(group))
        for keys, block in zip(group, read, strict=True):
            if block is not None and unpacked_bytes(block) <= _UNPACKED_BYTES:
                found[keys.session_id] = block
    return found


def _entries(
    page: Sequence[tuple[Described, Ends]], blocks: Mapping[str, bytes], dictionaries: Dictionaries
) -> list[SessionEntry]:
    return [_entry(described, end, blocks.get(described.keys.session_id), dictionaries) for described, end in page]


def _entry(described: Described, end: Ends, block: bytes | None, dictionaries: Dictionaries) -> SessionEntry:
    title = described.title
    if title is None:
        first = [] if block is None else _decode_first(block, dictionaries)
        title = title_of([*first, *_decode(end.first)])
    role, text = last_of(_decode(end.last))
    return SessionEntry(described.keys.session_id, described.active_ms, title, role, text, described.owner)


def _decode_first(block: bytes, dictionaries: Dictionaries) -> list[Message]:
    try:
        return _decode(decode_block(0, block, dictionaries)[1][:BLOCK_COUNT])
    except Undecodable:
        return []


def _decode(elements: Sequence[bytes]) -> list[Message]:
    """Return the messages in these elements; none if one is unreadable, which a read of the session reports."""
    try:
        return [message for message in decode_messages(elements, 1, "") if not is_gap(message)]
    except (Undecodable, UnsupportedFormat):
        return []

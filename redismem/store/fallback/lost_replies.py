"""Search Redis for an append whose reply was lost. It is repeated only if Redis did not make it.

The session remembers the tokens of its last appends, and for a minute older ones of this memory. A still older append
is searched among the messages, by content. It must also come after a known seq, have a possible time, and be of no
other append that is remembered, because an older message may have the same content. In doubt the append counts as not
made, because a message stored twice is better than a lost one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from itertools import chain
from time import monotonic
from typing import NamedTuple

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.messages.compression import expand_element
from redismem.messages.values import Undecodable
from redismem.originals.columns import STAMP
from redismem.protocol.session.append_ids import LastAppends, last_appends
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.page_reads import PageRange
from redismem.protocol.session.pages import MessagePage
from redismem.store.dictionaries import load_dictionaries
from redismem.store.fallback.backlog import Entry, Held
from redismem.store.pages import read_page
from redismem.store.store import Store

_PAGE_COUNT = 500
# Two clocks may drift apart by this share of the elapsed time, plus 1 ms because each is read in whole milliseconds.
_DRIFT = 0.001
_ROUNDING_MS = 1
_NEVER_MS = 1 << 64
_SOON_S = 0.05
_ASKED_COUNT = 4


class _StoredMessage(NamedTuple):
    """A stored message with its time."""

    stored_ms: int
    content: bytes
    """The bytes of the message's element, without the stamp."""


async def find_lost_append(store: Store, entry: Entry, held: Held) -> tuple[Sequence[int], int]:
    """Return the seqs of an append that Redis may have made, and the session's last seq.

    No seqs means that Redis did not make the append.

    Raises:
        ServerError: Redis replied with an error.
        ConnectionLost: Redis did not reply.
        RedismemError: Stored bytes cannot be read.
    """
    assert entry.sent_s is not None
    calls = store.session_calls(held.session_id)
    ids = await _read_ids(store, calls, entry.append.token)
    if ids is None:
        return (), 0
    place: Sequence[int] = ids.place(entry.append.name)
    first_seq = (entry.known_seq or 0) + 1
    if not place and first_seq <= ids.forgotten_seq and (times := _possible_stamps(entry, entry.sent_s, ids)):
        messages = await _load_messages(store, calls, ids, first_seq, times)
        taken = held.taken.union(*ids.older.values())
        place = _match(messages, entry, taken, ids.forgotten_seq - len(messages) + 1, times)
    return place, ids.last_seq


async def _read_ids(store: Store, calls: SessionCalls, token: bytes) -> LastAppends | None:
    """Return the last appends. A reply that takes long is asked for again.

    The time of the append is only known up to this delay, and an older equal message must not fall into it.
    """
    for _ in range(_ASKED_COUNT):
        begun_s = monotonic()
        ids = await store.once(last_appends(calls.keys, token))
        if monotonic() - begun_s < _SOON_S:
            break
    return ids


def _possible_stamps(entry: Entry, sent_s: float, ids: LastAppends) -> range | None:
    """Return the range of stamps that the append can have; `None` if the server's time is unknown."""
    if (given_ms := entry.append.now_ms) is not None:
        return range(given_ms, given_ms + 1)
    if ids.server_ms is None:
        return None
    since_ms = (monotonic() - sent_s) * 1000 * (1 + _DRIFT)
    return range(ids.server_ms - int(since_ms) - _ROUNDING_MS, _NEVER_MS)


async def _load_messages(
    store: Store, calls: SessionCalls, ids: LastAppends, first_seq: int, times: range
) -> list[_StoredMessage | None]:
    """Return the messages from `first_seq` to the last forgotten seq, or fewer.

    `None` stands for an unreadable message.

    The loop ends, because each page but the last is full and begins at a lower seq than the previous page.
    """
    pages: list[list[_StoredMessage | None]] = []
    start_seq = ids.forgotten_seq + 1
    while start_seq > first_seq:
        page = await read_page(store.once, calls.keys, PageRange(_PAGE_COUNT, start_seq, True))
        if page is None or page.epoch.encode() != ids.epoch or page.start_seq + page.count != start_seq:
            break
        page.dictionaries = await load_dictionaries(store, (block.stored for block in page.blocks))
        messages = await run_apart(
            store.transport, partial(_decode_page, page), is_much=page.unpacked_bytes > LARGE_BYTES
        )
        pages.append(messages)
        oldest = next((message for message in messages if message is not None), None)
        if page.count < _PAGE_COUNT or (oldest is not None and oldest.stored_ms < times.start):
            break
        start_seq = page.start_seq
    newest = list(chain.from_iterable(reversed(pages)))
    return newest[max(0, len(newest) - (ids.forgotten_seq - first_seq + 1)) :]


def _decode_page(page: MessagePage) -> list[_StoredMessage | None]:
    messages: list[_StoredMessage | None] = [None] * page.count
    for first_seq, elements in page.element_groups():
        at = first_seq - page.start_seq
        messages[at : at + len(elements)] = [_decode_stored(element) for element in elements]
    return messages


def _decode_stored(element: bytes) -> _StoredMessage | None:
    try:
        whole = expand_element(element)
    except Undecodable:
        return None
    return _StoredMessage(int.from_bytes(whole[1 - len(STAMP) :]), whole[: -len(STAMP)])


def _match(
    messages: Sequence[_StoredMessage | None], entry: Entry, taken: Set[int], first_seq: int, times: range
) -> Sequence[int]:
    """Return the seqs of the first run of messages that matches this append.

    `first_seq` is the seq of the first message. `taken` are the seqs of messages of other appends.
    """
    contents = list(entry.append.elements)
    for at in range(len(messages) - len(contents) + 1):
        some = [message for message in messages[at : at + len(contents)] if message is not None]
        stamps = {message.stored_ms for message in some}
        seqs = range(first_seq + at, first_seq + at + len(contents))
        # All messages of one append have the same stamp.
        is_like = [message.content for message in some] == contents and len(stamps) == 1
        if is_like and stamps.pop() in times and taken.isdisjoint(seqs):
            return seqs
    return ()

"""Looks in Redis for an append whose reply was lost, so that it is made again only if it is not there.

The session remembers its last appends by their tokens. What it has forgotten is looked for among its messages: by what
they hold, by the seqs behind which it must stand, and by when Redis took them, as an older one may say the same. What
cannot be decided counts as not there: a message that is there twice is better than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from time import monotonic
from typing import NamedTuple

from redismem.concurrency.offload import LARGE_BYTES, apart
from redismem.messages.compression import expand_element
from redismem.messages.values import Undecodable
from redismem.originals.columns import STAMP
from redismem.protocol.session.append_ids import LastAppends, last_appends
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.pages import Page
from redismem.store.dictionaries import load_dictionaries
from redismem.store.fallback.backlog import Entry, Held
from redismem.store.store import Store

_PAGE_COUNT = 500
# Two clocks may part by so much of the time that has gone by; 1 ms, as each is read in whole ones.
_DRIFT = 0.001
_ROUNDING_MS = 1
_NEVER_MS = 1 << 64


class _Found(NamedTuple):
    """A message that is stored."""

    stored_ms: int
    content: bytes
    """What its element holds without the stamp."""


async def place_of_lost(store: Store, entry: Entry, held: Held) -> tuple[Sequence[int], int]:
    """The seqs of an append that may be there, none if it is not; and the session's last seq.

    Raises ServerError, ConnectionLost, and what the replies mean.
    """
    assert entry.sent_s is not None
    calls = store.session_calls(held.session_id)
    known = await store.once(last_appends(calls.keys))
    if known is None:
        return (), 0
    place: Sequence[int] = known.place(entry.append.token)
    first_seq = (entry.known_seq or 0) + 1
    if not place and first_seq <= known.forgotten_seq and (times := _taken_within(entry, entry.sent_s, known)):
        messages = await _messages(store, calls, known, first_seq, times)
        place = _place(messages, entry, held, known.forgotten_seq - len(messages) + 1, times)
    return place, known.last_seq


def _taken_within(entry: Entry, sent_s: float, known: LastAppends) -> range | None:
    """The stamps that the append can have; None if nothing tells."""
    if (given_ms := entry.append.now_ms) is not None:
        return range(given_ms, given_ms + 1)
    if known.server_ms is None:
        return None
    since_ms = (monotonic() - sent_s) * 1000 * (1 + _DRIFT)
    return range(known.server_ms - int(since_ms) - _ROUNDING_MS, _NEVER_MS)


async def _messages(
    store: Store, calls: SessionCalls, known: LastAppends, first_seq: int, times: range
) -> list[_Found | None]:
    """The messages up to the last forgotten seq, from this one on at the earliest; None for one that cannot be read.

    It ends: each page but the last is whole, and begins at a lower seq than the one before it.
    """
    pages: list[list[_Found | None]] = []
    start_seq = known.forgotten_seq + 1
    while start_seq > first_seq:
        page = await store.once(calls.page(_PAGE_COUNT, start_seq, include_originals=True))
        if page is None or page.epoch.encode() != known.epoch or page.start_seq + page.count != start_seq:
            break
        page.dictionaries = await load_dictionaries(store, (block.stored for block in page.blocks))
        messages = await apart(store.transport, partial(_of_page, page), is_much=page.unpacked_bytes > LARGE_BYTES)
        pages.append(messages)
        oldest = next((message for message in messages if message is not None), None)
        if page.count < _PAGE_COUNT or (oldest is not None and oldest.stored_ms < times.start):
            break
        start_seq = page.start_seq
    found = list(chain.from_iterable(reversed(pages)))
    return found[max(0, len(found) - (known.forgotten_seq - first_seq + 1)) :]


def _of_page(page: Page) -> list[_Found | None]:
    found: list[_Found | None] = [None] * page.count
    for first_seq, elements in page.element_groups():
        at = first_seq - page.start_seq
        found[at : at + len(elements)] = [_stored(element) for element in elements]
    return found


def _stored(element: bytes) -> _Found | None:
    try:
        whole = expand_element(element)
    except Undecodable:
        return None
    return _Found(int.from_bytes(whole[1 - len(STAMP) :]), whole[: -len(STAMP)])


def _place(messages: Sequence[_Found | None], entry: Entry, held: Held, first_seq: int, times: range) -> Sequence[int]:
    """The seqs of the first messages that can be those of the append, and of no other. `first_seq`: of the first."""
    wanted = [expand_element(element + STAMP)[: -len(STAMP)] for element in entry.append.elements]
    for at in range(len(messages) - len(wanted) + 1):
        some = [message for message in messages[at : at + len(wanted)] if message is not None]
        stamps = {message.stored_ms for message in some}
        seqs = range(first_seq + at, first_seq + at + len(wanted))
        # One append has one stamp.
        is_like = [message.content for message in some] == wanted and len(stamps) == 1
        if is_like and stamps.pop() in times and held.taken.isdisjoint(seqs):
            return seqs
    return ()

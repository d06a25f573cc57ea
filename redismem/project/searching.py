"""Queries at work: as it is now, by indexes; as of a moment, by what the items were then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from redismem.project.folding import State
from redismem.project.indexes import ALL, HISTORY, WORDS
from redismem.project.items import Items
from redismem.project.querying import WORDS_MATCHED_LIMIT, Query, decode_cursor, encode_cursor, place
from redismem.project.schema import Kind
from redismem.protocol.call import Call
from redismem.protocol.project_calls import LATEST
from redismem.protocol.project_calls import Page as RawPage

Found = tuple[list[tuple[str, State]], str | None]
"""Items with their states, and the cursor of what follows."""

_BATCH_COUNT = 200


async def page(items: Items, query: Query, limit: int, cursor: str | None = None) -> Found:
    """A page of what is as the query asks, in the order of the kind: what it costs is what it finds."""
    after = decode_cursor(cursor)
    matched = await beginnings(items, query)
    found: dict[str, State] = {}
    while True:
        raw = await items.run(find(items, query, matched, limit - len(found), after))
        found |= fitting(items, query, raw)
        after = raw.after
        if after is None or len(found) >= limit:
            return list(found.items()), encode_cursor(after)


async def beginnings(items: Items, query: Query) -> list[list[str]]:
    """For each beginning of a word that is asked for, the words that there are; one more than are of use."""
    if not query.beginnings:
        return []
    return await items.run(vocabulary(items, query))


def vocabulary(items: Items, query: Query) -> Call[list[list[str]]]:
    """The call for `beginnings`."""
    index = items.keys.index(query.kind.letter, WORDS)
    return items.calls.words(index, query.beginnings, WORDS_MATCHED_LIMIT + 1)


def find(
    items: Items, query: Query, matched: Sequence[Sequence[str]], limit: int, after: tuple[str, str] | None = None
) -> Call[RawPage]:
    """The call for one page of a query. What an index does not tell may be among it: `fitting`."""
    groups = query.groups(items.keys, matched)
    return items.calls.find(items.keys.index(query.kind.letter, ALL), groups, limit, after)


def fitting(items: Items, query: Query, raw: RawPage) -> dict[str, State]:
    """What of a page is as the query asks. An index may hold too much: it is never left before an item has changed."""
    states = {item_id: items.decoded(item_id, body).state for item_id, body in raw.found}
    return {item_id: state for item_id, state in states.items() if query.fits(state)}


async def page_as_of(
    items: Items, query: Query, at_ms: int | None, known_ms: int | None, limit: int, cursor: str | None = None
) -> Found:
    """The same as of a moment: looks at every item that was there by then, at those changed since with all versions."""
    after = decode_cursor(cursor)
    found = [pair async for pair in as_of(items, query.kind, at_ms, known_ms) if query.fits(pair[1])]
    ordered = sorted(found, key=lambda pair: place(query.kind, *pair), reverse=True)
    if after is not None:
        behind = (int(after[0]), after[1])
        ordered = [pair for pair in ordered if place(query.kind, *pair) < behind]
    if len(ordered) <= limit:
        return ordered, None
    score, item_id = place(query.kind, *ordered[limit - 1])
    return ordered[:limit], encode_cursor((str(score), item_id))


async def count(items: Items, query: Query, at_ms: int | None, known_ms: int | None) -> int:
    """How many are as the query asks. It looks at each of them."""
    if at_ms is not None or known_ms is not None:
        return len([item_id async for item_id, state in as_of(items, query.kind, at_ms, known_ms) if query.fits(state)])
    total, cursor = 0, None
    while True:
        found, cursor = await page(items, query, _BATCH_COUNT, cursor)
        total += len(found)
        if cursor is None:
            return total


async def as_of(
    items: Items, kind: Kind, at_ms: int | None = None, known_ms: int | None = None
) -> AsyncIterator[tuple[str, State]]:
    """Every item of a kind as it was at a moment, as it was known at another: those that were there."""
    async for item_ids in histories(items, kind, LATEST if at_ms is None else at_ms):
        changed = []
        for stored in await items.read(item_ids):
            if stored is None:
                continue
            state = stored.state
            is_same = at_ms is None or state["latest_ms"] <= at_ms
            if is_same and (known_ms is None or state["updated_ms"] <= known_ms):
                if not state["deleted"]:
                    yield stored.id, state
            else:
                changed.append(stored.id)
        for stored in await items.read(changed, with_versions=True):
            then = None if stored is None else stored.as_of(at_ms, known_ms)
            if stored is not None and then is not None:
                yield stored.id, then


async def histories(items: Items, kind: Kind, until_ms: int = LATEST) -> AsyncIterator[list[str]]:
    """The ids of all items of a kind, deleted ones too, that were there by a moment."""
    index = items.keys.index(kind.letter, HISTORY)
    count = await items.run(items.calls.count_between(index, 0, until_ms))
    for first in range(0, count, _BATCH_COUNT):
        last = min(first + _BATCH_COUNT, count) - 1
        if item_ids := await items.run(items.calls.ranked(index, first, last)):
            yield item_ids

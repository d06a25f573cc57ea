"""Run queries and return their results in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from redismem.project.items.indexes import ALL, HISTORY, WORDS
from redismem.project.items.items import Items
from redismem.project.items.schema import ItemKind
from redismem.project.items.versions import State
from redismem.project.queries.query import WORDS_MATCHED_LIMIT, Query, decode_cursor, encode_cursor
from redismem.protocol.call import Call
from redismem.protocol.project.calls import EARLIEST, LATEST
from redismem.protocol.project.calls import ItemPage as RawPage

Found = tuple[list[tuple[str, State]], str | None]
"""Items with their states, and the cursor of the next page."""

_BATCH_COUNT = 200


async def load_page(items: Items, query: Query, limit: int, cursor: str | None = None) -> Found:
    """Load a page of items that match the query, in the order of their kind. The cost grows only with the results."""
    after = decode_cursor(cursor)
    matched = await match_prefixes(items, query)
    found: dict[str, State] = {}
    while True:
        raw = await items.run(find_call(items, query, matched, limit - len(found), after))
        found |= filter_page(items, query, raw)
        after = raw.after
        if after is None or len(found) >= limit:
            return list(found.items()), encode_cursor(after)


async def match_prefixes(items: Items, query: Query) -> list[list[str]]:
    """Return the known words for each prefix of the query: at most one more than WORDS_MATCHED_LIMIT."""
    if not query.beginnings:
        return []
    return await items.run(vocabulary_call(items, query))


def vocabulary_call(items: Items, query: Query) -> Call[list[list[str]]]:
    """Build a call that reads the known words for `match_prefixes`."""
    index = items.keys.index(query.kind.letter, WORDS)
    return items.calls.words(index, query.beginnings, WORDS_MATCHED_LIMIT + 1)


def find_call(
    items: Items, query: Query, matched: Sequence[Sequence[str]], limit: int, after: tuple[str, str] | None = None
) -> Call[RawPage]:
    """Build a call that reads one page of a query. The page may still need `filter_page`."""
    groups = query.groups(items.keys, matched)
    return items.calls.find(items.keys.index(query.kind.letter, ALL), groups, limit, after)


def filter_page(items: Items, query: Query, raw: RawPage) -> dict[str, State]:
    """Keep the items of a page that match the query. An index may contain an item that has just stopped matching."""
    states = {item_id: items.decode(item_id, body).state for item_id, body in raw.found}
    return {item_id: state for item_id, state in states.items() if query.fits(state)}


async def load_all(items: Items, query: Query) -> AsyncIterator[tuple[str, State]]:
    """Yield all items that match the query, in the order of their kind."""
    cursor = None
    while True:
        found, cursor = await load_page(items, query, _BATCH_COUNT, cursor)
        for pair in found:
            yield pair
        if cursor is None:
            return


async def load_from_score(items: Items, index: bytes, least: int) -> AsyncIterator[list[str]]:
    """Yield the ids in an index from a score upward, in batches. An item whose score rises meanwhile may come twice."""
    passed = 0
    while True:
        found = await items.run(items.calls.read_scores(index, least, passed, _BATCH_COUNT))
        if not found:
            return
        yield [item_id for item_id, _ in found]
        last = found[-1][1]
        at_last = sum(score == last for _, score in found)
        passed = at_last + (passed if last == least else 0)
        least = last


async def load_ids(items: Items, kind: ItemKind, until_ms: int = LATEST) -> AsyncIterator[list[str]]:
    """Yield the ids of all items of a kind that existed at a moment, including deleted items."""
    index = items.keys.index(kind.letter, HISTORY)
    count = await items.run(items.calls.count_between(index, EARLIEST, until_ms))
    for first in range(0, count, _BATCH_COUNT):
        last = min(first + _BATCH_COUNT, count) - 1
        if item_ids := await items.run(items.calls.read_ranks(index, first, last)):
            yield item_ids

"""Query items as of a moment. Unchanged items come from the indexes, changed items are rebuilt from their versions.

The cost of a page grows with its results and with the items changed or entered since that moment, not with all items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from redismem.project.items.indexes import CHANGED, NOTED, order_ranges
from redismem.project.items.items import Items, StoredItem
from redismem.project.items.versions import State
from redismem.project.queries import pages
from redismem.project.queries.pages import Found
from redismem.project.queries.query import Query, decode_cursor, encode_cursor, sort_key
from redismem.protocol.project.calls import LATEST

_BATCH_COUNT = 200

Pair = tuple[str, State]


class Moment(NamedTuple):
    """The moment at which items were true, and the moment at which they were known; `None` means now."""

    at_ms: int | None
    known_ms: int | None

    def is_later(self, state: State) -> bool:
        """True if this moment is after every change of the item, so that its state at the moment is the current one."""
        is_true = self.at_ms is None or max(state["latest_ms"], state["created_ms"]) <= self.at_ms
        return is_true and (self.known_ms is None or state["updated_ms"] <= self.known_ms)


async def page_as_of(items: Items, query: Query, moment: Moment, limit: int, cursor: str | None = None) -> Found:
    """Return a page of items that matched the query at that moment, in their order at that moment."""
    after = decode_cursor(cursor)
    behind = (LATEST, "~") if after is None else (int(after[0]), after[1])
    changed = [pair async for pair in _find_changed(items, query, moment) if sort_key(query.kind, *pair) < behind]
    found = [*changed, *await _find_unchanged(items, query, moment, limit + 1, behind)]
    found.sort(key=lambda pair: sort_key(query.kind, *pair), reverse=True)
    if len(found) <= limit:
        return found, None
    score, item_id = sort_key(query.kind, *found[limit - 1])
    return found[:limit], encode_cursor((str(score), item_id))


async def count_as_of(items: Items, query: Query, moment: Moment) -> int:
    """Count the items that matched the query at that moment. Reads each of them."""
    changed_count = len([pair async for pair in _find_changed(items, query, moment)])
    return changed_count + len(await _find_unchanged(items, query, moment, LATEST, (LATEST, "~")))


async def _find_unchanged(
    items: Items, query: Query, moment: Moment, limit: int, behind: tuple[int, str]
) -> list[Pair]:
    """Find the first items that match the query and have not changed since that moment."""
    found: list[Pair] = []
    words = await pages.match_prefixes(items, query)
    by_ms = min(LATEST if each is None else each for each in moment)
    for least, greatest in order_ranges(query.kind, by_ms):
        begin = min((greatest + 1, "-"), behind)
        after: tuple[str, str] | None = (str(begin[0]), begin[1])
        while after is not None and (int(after[0]), after[1]) > (least, "") and len(found) < limit:
            wanted = min(limit - len(found), _BATCH_COUNT)
            raw = await items.run(pages.find_call(items, query, words, wanted, after))
            states = pages.filter_page(items, query, raw)
            here = [pair for pair in states.items() if sort_key(query.kind, *pair)[0] >= least]
            found += [pair for pair in here if moment.is_later(pair[1])]
            after = raw.after
    return found[:limit]


async def _find_changed(items: Items, query: Query, moment: Moment) -> AsyncIterator[Pair]:
    """Yield items changed or entered since that moment, in their state at that moment, if they match the query."""
    seen: set[str] = set()
    for name, since_ms in ((CHANGED, moment.at_ms), (NOTED, moment.known_ms)):
        if since_ms is None:
            continue
        index = items.keys.index(query.kind.letter, name)
        async for item_ids in pages.load_from_score(items, index, since_ms + 1):
            fresh = [item_id for item_id in item_ids if item_id not in seen]
            seen.update(fresh)
            read = [stored for stored in await items.read(fresh) if stored is not None]
            wanted = [stored.id for stored in read if _existed(stored, moment)]
            for stored in await items.read(wanted, with_versions=True):
                then = None if stored is None else stored.as_of(*moment)
                # The index may contain unchanged items, which the query itself finds.
                if stored is not None and query.fits(then) and not moment.is_later(stored.state):
                    assert then is not None
                    yield stored.id, then


def _existed(stored: StoredItem, moment: Moment) -> bool:
    is_true = moment.at_ms is None or stored.state["valid_from_ms"] <= moment.at_ms
    return is_true and (moment.known_ms is None or stored.state["created_ms"] <= moment.known_ms)

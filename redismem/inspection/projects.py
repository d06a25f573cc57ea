"""Check a namespace's projects against their invariants. Never writes.

P1  an item equals the result of folding its versions
P2  an item is in exactly the indexes that it belongs to
P3  links and decision chains are recorded at both ends, and contain no cycle
P4  a name leads to the entity that has it
P5  a committed import is applied: the next process that uses the project applies it, then the project can be checked

A project with a violation is read again, and reported only if the violation persists, so that a concurrent write is
not reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

from redismem.errors import Conflict
from redismem.inspection.invariants import Violation
from redismem.project.items import stored as holdings
from redismem.project.items.items import Items, StoredItem
from redismem.project.items.links import entity_names, find_broken_links
from redismem.project.items.versions import fold
from redismem.protocol.project import calls as project_calls
from redismem.protocol.project.keys import ProjectKeys
from redismem.store.depths import sessions_count
from redismem.store.store import Store


async def check_projects(store: Store) -> AsyncIterator[Violation]:
    """Yield the violations in the namespace's projects; `session_id` is the project's name. Raises StoreUnavailable."""
    for name in await project_names(store):
        items = Items(store, ProjectKeys(store.keys, name), carries_out=False)
        try:
            broken = set(await _find_violations(items))
            if broken:
                broken &= set(await _find_violations(items))
        except Conflict as unfinished:
            broken = {("P5", unfinished.text)}
        for rule, text in sorted(broken):
            yield Violation(name, rule, text)


async def project_names(store: Store) -> list[str]:
    """Return the names of the namespace's projects, sorted. Raises StoreUnavailable."""
    return await store.run(project_calls.projects(store.keys))


async def is_known(store: Store) -> bool:
    """True if the namespace is recorded in Redis, or has sessions or projects without a record.

    Raises StoreUnavailable, UnsupportedFormat.
    """
    return await store.agreement.look() or bool(await project_names(store) or await sessions_count(store))


async def _find_violations(items: Items) -> list[tuple[str, str]]:
    broken: list[tuple[str, str]] = []
    by_id: dict[str, StoredItem] = {}
    async for item_id, stored, unreadable in holdings.load_items(items):
        if stored is not None:
            by_id[item_id] = stored
            broken += _version_rules(stored)
        elif unreadable is not None:
            broken.append(("P1", unreadable.text))
    broken += [rule_and_text async for rule_and_text in _index_rules(items, by_id)]
    broken += [("P3", text) for text in find_broken_links(by_id)]
    broken += [rule_and_text async for rule_and_text in _name_rules(items, by_id)]
    return broken


def _version_rules(stored: StoredItem) -> Iterator[tuple[str, str]]:
    state = fold(stored.kind, stored.deltas or ())
    if state != stored.state:
        names = [] if state is None else [name for name in state if state[name] != stored.state.get(name)]
        yield "P1", f"{stored.id} differs from its versions: {', '.join(sorted(names)) or 'no first version'}"


async def _index_rules(items: Items, by_id: dict[str, StoredItem]) -> AsyncIterator[tuple[str, str]]:
    expected: dict[holdings.Index, dict[str, int]] = {}
    for stored in by_id.values():
        holdings.add_places(expected, stored)
    async for index, seen in holdings.load_indexes(items, expected):
        members = expected.get(index, {})
        if seen != members:
            letter, name = index
            yield "P2", _difference(f"{letter}:{name.partition(':')[0]}", members, seen)


def _difference(index: str, expected: Mapping[str, int], seen: Mapping[str, int]) -> str:
    """Describe the first difference between an index and its expected entries, without any text of the items."""
    is_hidden = index.endswith(("words", "tags"))
    for item_id in sorted(expected.keys() ^ seen.keys()):
        subject = "a word" if is_hidden else item_id
        if item_id in expected:
            return f"{subject} is missing in the index {index}"
        return f"{subject} is in the index {index}, but does not belong there"
    moved = min(item_id for item_id in expected if expected[item_id] != seen[item_id])
    return f"{'a word' if is_hidden else moved} has a wrong place in the index {index}"


async def _name_rules(items: Items, by_id: dict[str, StoredItem]) -> AsyncIterator[tuple[str, str]]:
    names = await items.run(items.calls.all_names())
    expected = {
        name: stored.id for stored in by_id.values() if stored.kind.letter == "e" for name in entity_names(stored.state)
    }
    for name, item_id in expected.items():
        if names.get(name) != item_id:
            yield "P4", f"a name of {item_id} does not lead to it"
    for name, item_id in names.items():
        if name not in expected and item_id in by_id:
            yield "P4", f"a name leads to {item_id}, which does not have it"

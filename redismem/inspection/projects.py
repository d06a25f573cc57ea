"""Whether what is stored of a namespace's projects agrees with itself. Never writes.

P1  an item is what its versions make of it
P2  an item stands in the indexes that it belongs to, and in no other
P3  a link is seen from both ends, and so is the place of a decision in its chain; nothing leads back to itself
P4  a name leads to the entity that has it
P5  an import that counts is carried out: whoever uses the project next does it, and then it can be checked

It reads all of a project, twice if something looks wrong: what a writer changed meanwhile is no violation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

from redismem.errors import Conflict
from redismem.inspection.invariants import Violation
from redismem.project.items import stored as holdings
from redismem.project.items.items import Items, Stored
from redismem.project.items.links import entity_names, find_broken_links
from redismem.project.items.versions import fold
from redismem.protocol.project import calls as project_calls
from redismem.protocol.project.keys import ProjectKeys
from redismem.store.store import Store


async def check_projects(store: Store) -> AsyncIterator[Violation]:
    """Every violation in the projects of the namespace; its `session_id` is the project. Raises StoreUnavailable."""
    for name in await project_names(store):
        items = Items(store, ProjectKeys(store.keys, name), carries_out=False)
        try:
            found = set(await _violations(items))
            if found:
                found &= set(await _violations(items))
        except Conflict as unfinished:
            found = {("P5", unfinished.text)}
        for rule, text in sorted(found):
            yield Violation(name, rule, text)


async def project_names(store: Store) -> list[str]:
    """The names of the projects of the namespace, sorted. Raises StoreUnavailable."""
    return await store.run(project_calls.projects(store.keys))


async def is_known(store: Store) -> bool:
    """Whether the namespace is recorded in Redis, or has projects. Raises StoreUnavailable, UnsupportedFormat."""
    return await store.look() or bool(await project_names(store))


async def _violations(items: Items) -> list[tuple[str, str]]:
    wrong: list[tuple[str, str]] = []
    found: dict[str, Stored] = {}
    async for item_id, stored, unreadable in holdings.load_items(items):
        if stored is not None:
            found[item_id] = stored
            wrong += _version_rules(stored)
        elif unreadable is not None:
            wrong.append(("P1", unreadable.text))
    wrong += [each async for each in _index_rules(items, found)]
    wrong += [("P3", text) for text in find_broken_links(found)]
    wrong += [each async for each in _name_rules(items, found)]
    return wrong


def _version_rules(stored: Stored) -> Iterator[tuple[str, str]]:
    state = fold(stored.kind, stored.deltas or ())
    if state != stored.state:
        names = [] if state is None else [name for name in state if state[name] != stored.state.get(name)]
        yield "P1", f"{stored.id} is not what its versions make of it: {', '.join(sorted(names)) or 'no first version'}"


async def _index_rules(items: Items, found: dict[str, Stored]) -> AsyncIterator[tuple[str, str]]:
    expected: dict[holdings.Index, dict[str, int]] = {}
    for stored in found.values():
        holdings.add_places(expected, stored)
    async for index, seen in holdings.load_indexes(items, expected):
        members = expected.get(index, {})
        if seen != members:
            letter, name = index
            yield "P2", _difference(f"{letter}:{name.partition(':')[0]}", members, seen)


def _difference(index: str, expected: Mapping[str, int], seen: Mapping[str, int]) -> str:
    """The first of what is wrong with an index, without a word of any text."""
    hidden = index.endswith(("words", "tags"))
    for item_id in sorted(expected.keys() ^ seen.keys()):
        what = "a word" if hidden else item_id
        if item_id in expected:
            return f"{what} is missing in the index {index}"
        return f"{what} is in the index {index}, and does not belong there"
    moved = min(item_id for item_id in expected if expected[item_id] != seen[item_id])
    return f"{'a word' if hidden else moved} has another place in the index {index}"


async def _name_rules(items: Items, found: dict[str, Stored]) -> AsyncIterator[tuple[str, str]]:
    names = await items.run(items.calls.all_names())
    expected = {
        name: stored.id for stored in found.values() if stored.kind.letter == "e" for name in entity_names(stored.state)
    }
    for name, item_id in expected.items():
        if names.get(name) != item_id:
            yield "P4", f"a name of {item_id} does not find it"
    for name, item_id in names.items():
        if name not in expected and item_id in found:
            yield "P4", f"a name that {item_id} does not have finds it"

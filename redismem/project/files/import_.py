"""Write an import: stage its pieces, commit them in one step, then apply them.

If the process is killed before the commit, the project is unchanged and the staged pieces expire. If the process is
killed after the commit, the next process that uses the project first applies the remaining pieces.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from redismem.project.items.indexes import IndexEntry, places
from redismem.project.items.items import Items, StoredItem, check_size
from redismem.project.items.links import entity_names
from redismem.project.items.pending_import import carry_out
from redismem.project.items.versions import encode_body
from redismem.protocol.project import imports
from redismem.protocol.project.calls import Unfinished
from redismem.protocol.project.imports import Pieces

Write = tuple[Any, ...]
"""A Redis command: its name, key and arguments."""
Words = set[tuple[str, str, str]]
"""A set of words and tags, each as (the kind's letter, the vocabulary, the word)."""
_ITEMS_AT_ONCE = 16


async def write(items: Items, seen: bytes, pieces: Pieces) -> None:
    """Apply the pieces to the project, completely or not at all.

    `seen` is the project's number of changes when it was read. Raises Conflict if the project has changed since.
    """
    nonce = os.urandom(8).hex()
    number = 0
    for number, piece in enumerate(pieces.cut(), 1):
        await items.store.run(imports.stage(items.keys, nonce, number, piece))
    if number == 0:
        return
    await items.register()
    while True:
        try:
            await items.store.run(imports.commit(items.keys, nonce, seen))
            break
        except Unfinished:  # another import was committed first; this one is then refused
            await carry_out(items.store, items.keys)
    await carry_out(items.store, items.keys)


async def build_pieces(items: Items, there: Mapping[str, StoredItem], result: Mapping[str, StoredItem]) -> Pieces:
    """Build the writes of an import that is merged into the project. Raises TooLarge."""
    pieces = Pieces()
    gone: Words = set()
    come: Words = set()
    for at, item_id in enumerate(dict.fromkeys([*there, *result])):
        await breathe(items, at)
        before, after = there.get(item_id), result.get(item_id)
        if before is not after:
            old, new = _places(before), _places(after)
            for write in _writes(items, before, after, old, new):
                pieces.add(*write)
            gone |= _words(item_id, old)
            come |= _words(item_id, new)
    add_names(pieces, items, dict(names_of(there)), dict(names_of(result)))
    gone -= come
    for at, stored in enumerate(result.values() if gone else ()):
        await breathe(items, at)
        if there.get(stored.id) is stored:
            gone -= _words(stored.id, _places(stored))
    # A word shared by many items is written once.
    for letter, vocabulary, word in gone:
        pieces.add("ZREM", items.keys.index(letter, vocabulary), word)
    for letter, vocabulary, word in come:
        pieces.add("ZADD", items.keys.index(letter, vocabulary), 0, word)
    return pieces


async def breathe(items: Items, at: int) -> None:
    """Yield to the event loop once per batch of items, because thousands of items take seconds."""
    if at % _ITEMS_AT_ONCE == 0:
        await items.store.transport.sleep(0)


def _places(stored: StoredItem | None) -> dict[str, IndexEntry]:
    return {} if stored is None else places(stored.kind, stored.state)


def _words(item_id: str, found: Mapping[str, IndexEntry]) -> Words:
    """Return an item's words and tags, each with the letter of its kind and its vocabulary."""
    return {(item_id[0], place.vocabulary, place.word) for place in found.values() if place.vocabulary}


def _writes(
    items: Items,
    before: StoredItem | None,
    after: StoredItem | None,
    old: Mapping[str, IndexEntry],
    new: Mapping[str, IndexEntry],
) -> Iterator[Write]:
    """Yield the writes that turn one state of an item into another, except the words. The order does not matter."""
    stored = after or before
    assert stored is not None
    keys, kind, item_id = items.keys, stored.kind, stored.id
    for name, place in new.items():
        if name not in old or old[name].score != place.score:
            yield "ZADD", keys.index(kind.letter, name), place.score, item_id
    for name in old.keys() - new.keys():
        yield "ZREM", keys.index(kind.letter, name), item_id
    yield from item_writes(items, item_id, numbers_of(before), after)


def numbers_of(stored: StoredItem | None) -> Collection[int]:
    """Return the version numbers of an item."""
    return range(1, stored.state["version"] + 1) if stored is not None else ()


def item_writes(items: Items, item_id: str, numbers: Collection[int], after: StoredItem | None) -> Iterator[Write]:
    """Yield the writes that replace an item and its versions, which have these numbers. Raises TooLarge."""
    yield from _versions(items.keys.versions(item_id), numbers, after)
    if after is None:
        yield "HDEL", items.keys.items, item_id
        return
    assert after.deltas is not None
    body = encode_body(after.kind, after.state, max(after.deltas, key=lambda delta: delta.version))
    check_size(after.kind, item_id, after.state, body)
    yield "HSET", items.keys.items, item_id, body


def _versions(key: bytes, numbers: Collection[int], after: StoredItem | None) -> Iterator[Write]:
    """Yield the writes for the versions. A single version is stored in the item itself."""
    new_count = 0 if after is None else after.state["version"]
    if after is None or new_count == 1:
        if len(numbers) > 1:
            yield "DEL", key
        return
    for delta in sorted(after.deltas or (), key=lambda delta: delta.version):
        yield "HSET", key, delta.version, delta.encode()
    for number in numbers:
        if number > new_count:
            yield "HDEL", key, number


def names_of(found: Mapping[str, StoredItem]) -> Iterator[tuple[str, str]]:
    """Yield each name and the entity that has it."""
    for stored in found.values():
        if stored.kind.letter == "e":
            yield from ((name, stored.id) for name in entity_names(stored.state))


def add_names(pieces: Pieces, items: Items, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Add the writes that make each name refer to its entity in `after`."""
    for name in before.keys() | after.keys():
        if name not in after:
            pieces.add("HDEL", items.keys.names, name)
        elif before.get(name) != after[name]:
            pieces.add("HSET", items.keys.names, name, after[name])

"""How an import is written: in pieces that are staged, then made to count in one step, then carried out.

Who is killed before that step leaves what was there, and staged pieces that go by themselves; who is killed after it
leaves an import that counts, which the next one who asks the project anything carries out first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from redismem.project.carrying import carry_out
from redismem.project.folding import encode_body
from redismem.project.indexes import Place, places
from redismem.project.items import Items, Stored, check_size
from redismem.project.links import entity_names
from redismem.protocol import import_calls
from redismem.protocol.import_calls import Pieces
from redismem.protocol.project_calls import Unfinished

Write = tuple[Any, ...]
"""The word of a command, its key, its arguments."""
Words = set[tuple[str, str, str]]
"""Words and tags: the letter of the kind, the vocabulary, the word."""
_ITEMS_AT_ONCE = 16


async def write(items: Items, seen: bytes, there: Mapping[str, Stored], result: Mapping[str, Stored]) -> None:
    """Makes the project what the import says, all of it or nothing.

    `seen`: how many changes there were when `there` was read. Raises Conflict if there were more since, TooLarge.
    """
    nonce = os.urandom(8).hex()
    gathered = await _gathered(items, there, result)
    number = 0
    for number, piece in enumerate(gathered.cut(), 1):
        await items.store.run(import_calls.stage(items.keys, nonce, number, piece))
    if number == 0:
        return
    await items.listed()
    while True:
        try:
            await items.store.run(import_calls.count(items.keys, nonce, seen))
            break
        except Unfinished:  # another one's; behind it this one is refused
            await carry_out(items.store, items.keys)
    await carry_out(items.store, items.keys)


async def _gathered(items: Items, there: Mapping[str, Stored], result: Mapping[str, Stored]) -> Pieces:
    gathered = Pieces()
    gone: Words = set()
    come: Words = set()
    for at, item_id in enumerate(dict.fromkeys([*there, *result])):
        await breathe(items, at)
        before, after = there.get(item_id), result.get(item_id)
        if before is not after:
            old, new = _places(before), _places(after)
            for write in _writes(items, before, after, old, new):
                gathered.add(*write)
            gone |= _words(item_id, old)
            come |= _words(item_id, new)
    for name, holder in _names_changed(there, result):
        if holder:
            gathered.add("HSET", items.keys.names, name, holder)
        else:
            gathered.add("HDEL", items.keys.names, name)
    gone -= come
    for at, stored in enumerate(result.values() if gone else ()):
        await breathe(items, at)
        if there.get(stored.id) is stored:
            gone -= _words(stored.id, _places(stored))
    # A word that many items have is written once.
    for letter, vocabulary, word in gone:
        gathered.add("ZREM", items.keys.index(letter, vocabulary), word)
    for letter, vocabulary, word in come:
        gathered.add("ZADD", items.keys.index(letter, vocabulary), 0, word)
    return gathered


async def breathe(items: Items, at: int) -> None:
    """Lets others have their turn, once in so many items: thousands of them take seconds."""
    if at % _ITEMS_AT_ONCE == 0:
        await items.store.transport.sleep(0)


def _places(stored: Stored | None) -> dict[str, Place]:
    return {} if stored is None else places(stored.kind, stored.state)


def _words(item_id: str, found: Mapping[str, Place]) -> Words:
    """The words that an item has in vocabularies, each with the letter of its kind and the vocabulary."""
    return {(item_id[0], place.vocabulary, place.word) for place in found.values() if place.vocabulary}


def _writes(
    items: Items, before: Stored | None, after: Stored | None, old: Mapping[str, Place], new: Mapping[str, Place]
) -> Iterator[Write]:
    """What makes one item of another but for its words: writes, none of which depends on one before it."""
    keys, stored = items.keys, after or before
    assert stored is not None
    kind, item_id = stored.kind, stored.id
    for name, place in new.items():
        if name not in old or old[name].score != place.score:
            yield "ZADD", keys.index(kind.letter, name), place.score, item_id
    for name in old.keys() - new.keys():
        yield "ZREM", keys.index(kind.letter, name), item_id
    yield from _versions(items, before, after)
    if after is None:
        yield "HDEL", keys.items, item_id
        return
    assert after.deltas is not None
    body = encode_body(kind, after.state, max(after.deltas, key=lambda delta: delta.version))
    check_size(kind, item_id, after.state, body)
    yield "HSET", keys.items, item_id, body


def _versions(items: Items, before: Stored | None, after: Stored | None) -> Iterator[Write]:
    """A first version stands in the item itself as long as it has no other."""
    old_count = 0 if before is None else before.state["version"]
    new_count = 0 if after is None else after.state["version"]
    if after is None or new_count == 1:
        if before is not None and old_count > 1:
            yield "DEL", items.keys.versions(before.id)
        return
    versions = items.keys.versions(after.id)
    for delta in sorted(after.deltas or (), key=lambda delta: delta.version):
        yield "HSET", versions, delta.version, delta.encode()
    for number in range(new_count + 1, old_count + 1):
        yield "HDEL", versions, number


def names_of(found: Mapping[str, Stored]) -> Iterator[tuple[str, str]]:
    """Each name, and the entity that has it."""
    for stored in found.values():
        if stored.kind.letter == "e":
            yield from ((name, stored.id) for name in entity_names(stored.state))


def _names_changed(there: Mapping[str, Stored], result: Mapping[str, Stored]) -> Iterator[tuple[str, str]]:
    before, after = dict(names_of(there)), dict(names_of(result))
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            yield name, after.get(name, "")

"""How an import is written: in pieces that are staged, then made to count in one step, then carried out.

Who is killed before that step leaves what was there, and staged pieces that go by themselves; who is killed after it
leaves an import that counts, which the next one who asks the project anything carries out first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from redismem.project.carrying import carry_out
from redismem.project.folding import encode_body
from redismem.project.indexes import places
from redismem.project.items import Items, Stored, check_size
from redismem.project.links import entity_names
from redismem.protocol import import_calls
from redismem.protocol.call import Command
from redismem.protocol.import_calls import Pieces
from redismem.protocol.project_calls import Unfinished


async def write(items: Items, seen: bytes, there: Mapping[str, Stored], result: Mapping[str, Stored]) -> None:
    """Makes the project what the import says, all of it or nothing.

    `seen`: how many changes there were when `there` was read. Raises Conflict if there were more since, TooLarge.
    """
    nonce = os.urandom(8).hex()
    number = 0
    for number, piece in enumerate(_pieces(items, there, result), 1):
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


def _pieces(items: Items, there: Mapping[str, Stored], result: Mapping[str, Stored]) -> Iterator[bytes]:
    gathered = Pieces()
    for write in _all_writes(items, there, result):
        gathered.add(*write)
        if gathered.is_full:
            yield gathered.taken()
    if rest := gathered.taken():
        yield rest


def _all_writes(items: Items, there: Mapping[str, Stored], result: Mapping[str, Stored]) -> Iterator[Command]:
    for item_id in dict.fromkeys([*there, *result]):
        before, after = there.get(item_id), result.get(item_id)
        if before is not after:
            yield from _writes(items, before, after)
    for name, holder in _names_changed(there, result):
        yield ("HSET", items.keys.names, name, holder) if holder else ("HDEL", items.keys.names, name)
    for letter, vocabulary, word in _words_gone(there, result):
        yield "ZREM", items.keys.index(letter, vocabulary), word


def _writes(items: Items, before: Stored | None, after: Stored | None) -> Iterator[Command]:
    """What makes one item of another: writes, none of which depends on one before it."""
    keys, stored = items.keys, after or before
    assert stored is not None
    kind, item_id = stored.kind, stored.id
    old = {} if before is None else places(kind, before.state)
    new = {} if after is None else places(kind, after.state)
    for name, place in new.items():
        if name not in old or old[name].score != place.score:
            yield "ZADD", keys.index(kind.letter, name), place.score, item_id
        if place.vocabulary and name not in old:
            yield "ZADD", keys.index(kind.letter, place.vocabulary), 0, place.word
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


def _versions(items: Items, before: Stored | None, after: Stored | None) -> Iterator[Command]:
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


def _words_gone(there: Mapping[str, Stored], result: Mapping[str, Stored]) -> set[tuple[str, str, str]]:
    """(letter, vocabulary, word) of each word and tag that no item has any more."""
    lost: set[tuple[str, str, str]] = set()
    for stored in there.values():
        if result.get(stored.id) is not stored:
            lost |= _words(stored)
    for stored in result.values() if lost else ():
        lost -= _words(stored)
    return lost


def _words(stored: Stored) -> set[tuple[str, str, str]]:
    found = places(stored.kind, stored.state).values()
    return {(stored.kind.letter, place.vocabulary, place.word) for place in found if place.vocabulary}

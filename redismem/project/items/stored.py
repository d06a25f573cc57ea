"""Read the stored items and indexes of a project as they are, even if they are inconsistent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from redismem.errors import CorruptSession
from redismem.project.items.indexes import TAGS, WORDS, places
from redismem.project.items.items import Items, StoredItem
from redismem.protocol.call import Call
from redismem.protocol.project.calls import combine
from redismem.protocol.project.keys import KINDS

Index = tuple[str, str]
"""The letter of a kind, and the name of an index."""
_PAGE_COUNT = 200
# Limits per call, so that it blocks Redis for no more than two or three milliseconds.
_TOGETHER_COUNT, _MEMBERS_COUNT = 20, 500
# Indexes that every kind may have, independent of its items.
_PLAIN = (
    *("all", "live", "open", "archived", "merged", "history", "changed", "noted"),
    *("created", "updated", "due", "mentioned", TAGS, WORDS),
)


def add_places(indexes: dict[Index, dict[str, int]], stored: StoredItem) -> None:
    """Add the index entries that an item implies: members with their scores."""
    for name, place in places(stored.kind, stored.state).items():
        indexes.setdefault((stored.kind.letter, name), {})[stored.id] = place.score
        if place.vocabulary:
            indexes.setdefault((stored.kind.letter, place.vocabulary), {})[place.word] = 0


async def _item_ids(items: Items) -> AsyncIterator[list[str]]:
    cursor = 0
    while True:
        command = ("HSCAN", items.keys.items, cursor, "COUNT", _PAGE_COUNT)
        cursor, pairs = await items.run(Call(None, (command,), lambda reply: (int(reply[0]), reply[1])))
        names = list(pairs) if isinstance(pairs, dict) else pairs[::2]
        if names:
            yield [name.decode("utf-8", "replace") for name in names]
        if cursor == 0:
            break


async def load_items(items: Items) -> AsyncIterator[tuple[str, StoredItem | None, CorruptSession | None]]:
    """Yield every stored item id with the item and its versions, or with the fault that makes the item unreadable.

    Both are `None` if the item was removed meanwhile."""
    async for some in _item_ids(items):
        try:
            loaded = await items.read(some, with_versions=True)
        except CorruptSession:
            for item_id in some:
                try:
                    (stored,) = await items.read([item_id], with_versions=True)
                    yield item_id, stored, None
                except CorruptSession as fault:
                    yield item_id, None, fault
        else:
            for item_id, stored in zip(some, loaded, strict=True):
                yield item_id, stored, None


async def load_indexes(items: Items, also: Iterable[Index]) -> AsyncIterator[tuple[Index, Mapping[str, int]]]:
    """Yield the contents of these indexes, the fixed indexes of every kind, and the indexes that vocabularies name."""
    wanted = dict.fromkeys([*also, *((letter, name) for letter in KINDS for name in _PLAIN)])
    for vocabulary, index in ((WORDS, "word"), (TAGS, "tag")):
        async for (letter, _), words in _load_members(items, [(letter, vocabulary) for letter in KINDS]):
            wanted |= dict.fromkeys((letter, f"{index}:{word}") for word in words)
    async for each in _load_members(items, list(wanted)):
        yield each


async def _load_members(items: Items, indexes: list[Index]) -> AsyncIterator[tuple[Index, Mapping[str, int]]]:
    for begin in range(0, len(indexes), _TOGETHER_COUNT):
        some = indexes[begin : begin + _TOGETHER_COUNT]
        found = await items.run(combine([_page(items, *index, 0) for index in some]))
        for index, members in zip(some, found, strict=True):
            page = members
            while len(page) == _MEMBERS_COUNT:
                page = await items.run(_page(items, *index, len(members)))
                members |= page
            yield index, members


def _page(items: Items, letter: str, name: str, first: int) -> Call[dict[str, int]]:
    def decode(reply: Any) -> dict[str, int]:
        pairs = (
            reply if reply and isinstance(reply[0], list | tuple) else list(zip(reply[::2], reply[1::2], strict=True))
        )
        return {member.decode("utf-8", "replace"): int(float(score)) for member, score in pairs}

    last = first + _MEMBERS_COUNT - 1
    return Call(None, (("ZRANGE", items.keys.index(letter, name), first, last, "WITHSCORES"),), decode)

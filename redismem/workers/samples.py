"""The sessions whose originals a dictionary is trained on: remembered by id, read from Redis at the training."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from redismem.errors import CorruptSession, UnsupportedFormat
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_block, unpacked_bytes
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.training import Person
from redismem.protocol.session import pages
from redismem.protocol.session.pages import Block
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

SAMPLE_BYTES = 1024 * 1024
"""The most bytes of messages that a dictionary is trained on."""
SESSION_LIMIT = 1_024
MIN_SAMPLE_BYTES, MIN_SESSIONS = 256 * 1024, 8

_SESSION_BYTES = 64 * 1024
_BLOCKS_LIMIT = 8
_TOGETHER_COUNT = 16


class SampledSessions:
    """The sessions that one worker has stored originals of, the newest last. Holds ids, never a text of a message.

    So a message counts only if Redis still has it at the training: nothing that was cleared, pruned or replaced does.
    """

    def __init__(self) -> None:
        self._bytes_of: OrderedDict[str, int] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._bytes_of)

    @property
    def is_enough(self) -> bool:
        """True if the sessions probably suffice for a dictionary."""
        return len(self) >= MIN_SESSIONS and self._size_bytes >= MIN_SAMPLE_BYTES

    def note(self, session_id: str, size_bytes: int) -> None:
        """Remember that a commit stores this many bytes of the session."""
        before_bytes = self._bytes_of.pop(session_id, 0)
        self._bytes_of[session_id] = min(_SESSION_BYTES, before_bytes + size_bytes)
        self._size_bytes += self._bytes_of[session_id] - before_bytes
        while self._size_bytes > SAMPLE_BYTES or len(self) > SESSION_LIMIT:
            self._size_bytes -= self._bytes_of.popitem(last=False)[1]

    async def load(self, store: Store) -> dict[Person, list[list[bytes]]]:
        """Return the newest messages of the newest sessions, up to SAMPLE_BYTES, by person: a list per block.

        Raises StoreUnavailable.
        """
        newest_first = list(reversed(self._bytes_of.items()))
        loaded: dict[Person, list[list[bytes]]] = {}
        size_bytes = 0
        for at in range(0, len(newest_first), _TOGETHER_COUNT):
            part = newest_first[at : at + _TOGETHER_COUNT]
            people, blocks_of = zip(*await asyncio.gather(*(_load_blocks(store, *each) for each in part)), strict=True)
            dictionaries = await load_dictionaries(store, (block.stored for blocks in blocks_of for block in blocks))
            decoded = await asyncio.to_thread(_decode, blocks_of, dictionaries)
            for person, blocks in zip(people, decoded, strict=True):
                size_bytes += sum(len(element) for elements in blocks for element in elements)
                if size_bytes > SAMPLE_BYTES:
                    break
                if blocks:
                    loaded[person] = blocks + loaded.get(person, [])
        return dict(reversed(loaded.items()))


async def _load_blocks(store: Store, session_id: str, noted_bytes: int) -> tuple[Person, list[Block]]:
    """Return the person of a session, and its newest blocks, until they have `noted_bytes`.

    An unreadable session has no blocks.
    """
    calls, person = store.session_calls(session_id), Person(session_id, False)
    try:
        info = await store.run(calls.info())
        if info is None or info.first_seq == 1:
            return person, []
        person = person if info.owner is None else Person(info.owner, True)
        last = block_number(info.first_seq - 1)
        numbers = range(max(0, last + 1 - _BLOCKS_LIMIT), last + 1)
        stored = await store.run(pages.blocks(calls.keys, numbers))
    except (CorruptSession, UnsupportedFormat):
        return person, []
    newest: list[Block] = []
    size_bytes = 0
    for block in reversed(stored):
        size_bytes += unpacked_bytes(block.stored)
        if size_bytes > _SESSION_BYTES:
            break
        newest.append(block)
        if size_bytes >= noted_bytes:
            break
    return person, newest[::-1]


def _decode(blocks_of: Sequence[Sequence[Block]], dictionaries: Dictionaries) -> list[list[list[bytes]]]:
    return [[elements for block in blocks if (elements := _elements(block, dictionaries))] for blocks in blocks_of]


def _elements(block: Block, dictionaries: Dictionaries) -> list[bytes]:
    """Return the elements of a block; an unreadable block has none."""
    try:
        return decode_block(*block, dictionaries)[1]
    except Undecodable:
        return []  # a turn or worker that needs the block quarantines it

"""Trains dictionaries on the messages that a worker keeps, and tells which one new blocks are to be compressed with.

A worker that dies in the middle loses its samples and nothing else. Two that train at the same time: one is first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Sequence

from redismem.errors import RedismemError
from redismem.events import facts
from redismem.originals.blocks import BLOCK_COUNT, encode_block
from redismem.originals.dictionaries import Dictionary, build_samples, train_dictionary
from redismem.protocol.namespace import dictionaries
from redismem.store.dictionaries import load_versions, reload_versions
from redismem.store.store import Store
from redismem.workers.failures import log_failure

log = logging.getLogger("redismem.worker")

SAMPLE_BYTES = 1024 * 1024
"""What is kept in memory to train on, at most."""
ENOUGH_BYTES, ENOUGH_SESSIONS = 256 * 1024, 8
MOST_DICTIONARIES = 8
"""A namespace gets no more: none of them can ever go."""
SETTLED_MS = 60_000
"""One is used when it is so old: a failover may lose what was written last, and no block may outlive its dictionary."""
AGAIN_MS = 86_400_000
"""Another is trained so much later at the earliest."""

_LOOK_MS = 60_000
_SESSION_BYTES = 64 * 1024
# One block of so many is for measuring.
_HELD_OUT = 6
# Less than that is not worth one of the few there may be.
_GAIN = 0.9


class Trainer:
    """Makes the dictionaries of a namespace out of what one worker has kept."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._samples: deque[tuple[str, list[bytes], int]] = deque()
        self._bytes_of: Counter[str] = Counter()
        self._time_ms = self._looked_ms = self._tried_ms = -AGAIN_MS
        self._used = 0
        """The version that new blocks are compressed with; 0: none."""
        self._is_training = False

    async def dictionary(self, time_ms: int) -> Dictionary | None:
        """What to compress new blocks with; None: nothing. If the dictionaries cannot be read, that is logged."""
        if not self.store.settings.train_dictionaries:
            return None
        self._time_ms = time_ms
        if not 0 <= time_ms - self._looked_ms < _LOOK_MS:
            self._looked_ms = time_ms
            try:
                await self._look()
                self._used = await self._settled(time_ms)
            except RedismemError as error:
                self._used = 0
                log_failure("the dictionaries cannot be read", error, facts(op="dictionaries"))
        found = self.store.dictionaries.get(self._used)
        return found if found is not None and _is_settled(found, time_ms) else None

    async def _settled(self, time_ms: int) -> int:
        """The newest version that is old enough, if it is in Redis as it is known here from then on; else 0.

        What is compressed with one that is not there, nobody else could read.
        """
        known = self.store.dictionaries.values()
        version = max((each.version for each in known if _is_settled(each, time_ms)), default=0)
        return version if version and version in await reload_versions(self.store, [version]) else 0

    async def _look(self) -> int:
        """Reads what is new, and puts back what is there no more. Gives the newest version there is."""
        store = self.store
        there = await store.run(dictionaries.versions(store.keys))
        for lost in store.dictionaries.keys() - set(there):
            await store.run(dictionaries.add(store.keys, store.dictionaries[lost]))
            known = facts(op="dictionaries", namespace=store.keys.namespace)
            log.warning("dictionary %d was gone from Redis, and was put back", lost, extra=known)
        await load_versions(store, there)
        return max([0, *there, *store.dictionaries])

    def note(self, session_id: str, elements: Sequence[bytes]) -> None:
        """A commit has kept these elements of a session."""
        size_bytes = sum(map(len, elements))
        if not self.store.settings.train_dictionaries or self._bytes_of[session_id] + size_bytes > _SESSION_BYTES:
            return
        self._samples.append((session_id, list(elements), size_bytes))
        self._bytes_of[session_id] += size_bytes
        while self._bytes_of.total() > SAMPLE_BYTES:
            oldest, _, gone_bytes = self._samples.popleft()
            self._bytes_of[oldest] -= gone_bytes
            if not self._bytes_of[oldest]:
                del self._bytes_of[oldest]

    async def train(self) -> bool:
        """Makes a dictionary of the samples, if there are enough, and it is time for one, and it is worth it.

        It is as late as the last commit was. In a thread: others get their turn meanwhile. What goes wrong is logged,
        and tried again a day later.
        """
        time_ms = self._time_ms
        is_enough = len(self._bytes_of) >= ENOUGH_SESSIONS and self._bytes_of.total() >= ENOUGH_BYTES
        if not is_enough or self._is_training or 0 <= time_ms - self._tried_ms < AGAIN_MS:
            return False
        self._tried_ms, self._is_training = time_ms, True
        try:
            return await self._train(time_ms)
        except Exception as error:  # of the compressor, or of Redis: no session waits for a dictionary
            log_failure("no dictionary was trained", error, facts(op="dictionaries"))
            return False
        finally:
            self._is_training = False

    async def _train(self, time_ms: int) -> bool:
        store = self.store
        newest = await self._look()
        used = store.dictionaries.get(newest)
        if newest >= MOST_DICTIONARIES or (used is not None and time_ms - used.created_ms < AGAIN_MS):
            return False
        samples = [(session_id, elements) for session_id, elements, _ in self._samples]
        made = await asyncio.to_thread(better, samples, newest + 1, time_ms, used)
        if made is None or not await store.run(dictionaries.add(store.keys, made)):
            return False
        known = facts(op="dictionaries", namespace=store.keys.namespace, session_count=len(self._bytes_of))
        log.info("dictionary %d was trained on %d sessions", made.version, len(self._bytes_of), extra=known)
        return True


def _is_settled(each: Dictionary, time_ms: int) -> bool:
    return time_ms - each.created_ms >= SETTLED_MS


def better(
    samples: Sequence[tuple[str, Sequence[bytes]]], version: int, time_ms: int, used: Dictionary | None
) -> Dictionary | None:
    """A dictionary trained on these, if one of the older of them makes the newest smaller by so much than what is used.

    What is used may have been trained on the older ones, so they would speak for it.
    """
    whole: dict[str, list[bytes]] = {}
    for session_id, elements in samples:
        whole.setdefault(session_id, []).extend(elements)
    blocks = [
        (session_id, elements[at : at + BLOCK_COUNT])
        for session_id, elements in whole.items()
        for at in range(0, len(elements), BLOCK_COUNT)
    ]
    older = len(blocks) - max(1, len(blocks) // _HELD_OUT)
    tried = _dictionary(blocks[:older], version, time_ms)
    if tried is None:
        return None
    before, after = (sum(len(encode_block(1, each, one)) for _, each in blocks[older:]) for one in (used, tried))
    return _dictionary(blocks, version, time_ms) if after <= _GAIN * before else None


def _dictionary(blocks: Sequence[tuple[str, Sequence[bytes]]], version: int, time_ms: int) -> Dictionary | None:
    by_session: dict[str, list[Sequence[bytes]]] = {}
    for session_id, block in blocks:
        by_session.setdefault(session_id, []).append(block)
    content = train_dictionary(build_samples(by_session))
    return None if content is None else Dictionary(version, time_ms, content)

"""Train compression dictionaries on the messages that a worker keeps as originals, and choose one for new blocks.

A crashed worker loses only its samples. If two workers train at the same time, the first one wins.
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
"""The maximum size of the samples in memory."""
MIN_SAMPLE_BYTES, MIN_SESSIONS = 256 * 1024, 8
MAX_DICTIONARIES = 8
"""The maximum number of dictionaries per namespace. A dictionary is never deleted, since old blocks may need it."""
SETTLED_MS = 60_000
"""The age from which a dictionary is used. A failover could lose a younger one, and the blocks would be unreadable."""
RETRAIN_MS = 86_400_000
"""The minimum time between two trainings."""

_POLL_MS = 60_000
_SESSION_BYTES = 64 * 1024
# One block in this many is held out to measure the dictionary.
_HELD_OUT = 6
# A new dictionary must shrink blocks to this share, as their number is limited.
_GAIN = 0.9


class Trainer:
    """Train the dictionaries of a namespace on the messages that one worker has kept."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._samples: deque[tuple[str, list[bytes], int]] = deque()
        self._bytes_of: Counter[str] = Counter()
        self._time_ms = self._polled_ms = self._tried_ms = -RETRAIN_MS
        self._version = 0
        """The version of the dictionary for new blocks; 0 means that new blocks use no dictionary."""
        self._is_training = False

    async def dictionary(self, time_ms: int) -> Dictionary | None:
        """Return the dictionary for new blocks; `None` means that they use none. Logs an error of Redis."""
        if not self.store.settings.train_dictionaries:
            return None
        self._time_ms = time_ms
        if not 0 <= time_ms - self._polled_ms < _POLL_MS:
            self._polled_ms = time_ms
            try:
                await self._sync()
                self._version = await self._load_settled(time_ms)
            except RedismemError as error:
                self._version = 0
                log_failure("the dictionaries cannot be read", error, facts(op="dictionaries"))
        dictionary = self.store.dictionaries.get(self._version)
        return dictionary if dictionary is not None and _is_settled(dictionary, time_ms) else None

    async def _load_settled(self, time_ms: int) -> int:
        """Return the newest version that is at least SETTLED_MS old, if Redis still has it; else 0.

        No other process could read a block whose dictionary is missing from Redis.
        """
        settled = (each.version for each in self.store.dictionaries.values() if _is_settled(each, time_ms))
        version = max(settled, default=0)
        return version if version and version in await reload_versions(self.store, [version]) else 0

    async def _sync(self) -> int:
        """Load new dictionaries, write back dictionaries that Redis has lost, and return the newest version."""
        store = self.store
        versions = await store.run(dictionaries.versions(store.keys))
        for lost in store.dictionaries.keys() - set(versions):
            await store.run(dictionaries.add(store.keys, store.dictionaries[lost]))
            known = facts(op="dictionaries", namespace=store.keys.namespace)
            log.warning("dictionary %d was missing from Redis and was restored", lost, extra=known)
        await load_versions(store, versions)
        return max([0, *versions, *store.dictionaries])

    def note(self, session_id: str, elements: Sequence[bytes]) -> None:
        """Take the elements that a commit has kept as samples."""
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
        """Train a dictionary if there are enough samples and the last training is a day ago. True if it is stored.

        A dictionary that does not compress better than the current one is discarded. Training runs in a thread. A
        failure is logged, and the training is retried a day later.
        """
        time_ms = self._time_ms
        is_enough = len(self._bytes_of) >= MIN_SESSIONS and self._bytes_of.total() >= MIN_SAMPLE_BYTES
        if not is_enough or self._is_training or 0 <= time_ms - self._tried_ms < RETRAIN_MS:
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
        newest = await self._sync()
        used = store.dictionaries.get(newest)
        if newest >= MAX_DICTIONARIES or (used is not None and time_ms - used.created_ms < RETRAIN_MS):
            return False
        samples = [(session_id, elements) for session_id, elements, _ in self._samples]
        dictionary = await asyncio.to_thread(train_if_better, samples, newest + 1, time_ms, used)
        if dictionary is None or not await store.run(dictionaries.add(store.keys, dictionary)):
            return False
        known = facts(op="dictionaries", namespace=store.keys.namespace, session_count=len(self._bytes_of))
        log.info("dictionary %d was trained on %d sessions", dictionary.version, len(self._bytes_of), extra=known)
        return True


def _is_settled(dictionary: Dictionary, time_ms: int) -> bool:
    return time_ms - dictionary.created_ms >= SETTLED_MS


def train_if_better(
    samples: Sequence[tuple[str, Sequence[bytes]]], version: int, time_ms: int, used: Dictionary | None
) -> Dictionary | None:
    """Return a dictionary trained on all samples if training pays off, else `None`.

    It pays off if a dictionary trained on the older samples compresses the newest samples better than `used` does. The
    older samples cannot serve for the comparison, because `used` may have been trained on them.
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
    trial = _dictionary(blocks[:older], version, time_ms)
    if trial is None:
        return None
    before, after = (
        sum(len(encode_block(1, elements, dictionary)) for _, elements in blocks[older:])
        for dictionary in (used, trial)
    )
    return _dictionary(blocks, version, time_ms) if after <= _GAIN * before else None


def _dictionary(blocks: Sequence[tuple[str, Sequence[bytes]]], version: int, time_ms: int) -> Dictionary | None:
    by_session: dict[str, list[Sequence[bytes]]] = {}
    for session_id, block in blocks:
        by_session.setdefault(session_id, []).append(block)
    content = train_dictionary(build_samples(by_session))
    return None if content is None else Dictionary(version, time_ms, content)

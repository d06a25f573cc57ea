"""Train compression dictionaries on the originals that a worker stores, and choose one for new blocks.

If two workers train at the same time, the first one wins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from redismem.errors import RedismemError
from redismem.events import facts
from redismem.originals.blocks import encode_block
from redismem.originals.dictionaries import LAST_VERSION, SETTLED_MS, Dictionary
from redismem.originals.training import Blocks, Person, train_dictionary
from redismem.protocol.namespace import dictionaries
from redismem.protocol.namespace.dictionaries import Listing
from redismem.store.dictionaries import load_versions, reload_versions
from redismem.store.store import Store
from redismem.workers.failures import log_failure
from redismem.workers.samples import SampledSessions

log = logging.getLogger("redismem.worker")

MAX_DICTIONARIES = 8
"""The maximum number of dictionaries per namespace at a time, without dropped ones."""
RETRAIN_MS = 86_400_000
"""The minimum time between two trainings."""

_POLL_MS = 60_000
# One block in this many is held out to measure the dictionary.
_HELD_OUT = 6
# A new dictionary must shrink blocks to this share, as their number is limited.
_GAIN = 0.9


class Trainer:
    """Train the dictionaries of a namespace on the sessions that one worker has stored originals of."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._sessions = SampledSessions()
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
                self._version = await self._load_settled(await self._sync(), time_ms)
            except RedismemError as error:
                self._version = 0
                log_failure("the dictionaries cannot be read", error, facts(op="dictionaries"))
        dictionary = self.store.dictionaries.get(self._version)
        return dictionary if dictionary is not None and _is_settled(dictionary, time_ms) else None

    async def _load_settled(self, listing: Listing, time_ms: int) -> int:
        """Return the newest version that is at least SETTLED_MS old and not retired, if Redis still has it; else 0.

        No other process could read a block whose dictionary is missing from Redis.
        """
        loaded = self.store.dictionaries.values()
        settled = (
            each.version for each in loaded if each.version not in listing.retired and _is_settled(each, time_ms)
        )
        version = max(settled, default=0)
        return version if version and version in await reload_versions(self.store, [version]) else 0

    async def _sync(self) -> Listing:
        """Load new dictionaries, forget dropped ones, and write back dictionaries that Redis has lost."""
        store = self.store
        listing = await store.run(dictionaries.listing(store.keys))
        for lost in store.dictionaries.keys() - set(listing.versions):
            if lost in listing.dropped:
                del store.dictionaries[lost]
                continue
            await store.run(dictionaries.add(store.keys, store.dictionaries[lost]))
            known = facts(op="dictionaries", namespace=store.keys.namespace)
            log.warning("dictionary %d was missing from Redis and was restored", lost, extra=known)
        await load_versions(store, listing.versions)
        return listing

    def note(self, session_id: str, elements: Sequence[bytes]) -> None:
        """Take a session into the sample, because a commit stores these elements of it."""
        if self.store.settings.train_dictionaries:
            self._sessions.note(session_id, sum(map(len, elements)))

    async def train(self) -> bool:
        """Train a dictionary if there are enough sessions and the last training is a day ago. True if it is stored.

        A dictionary that does not compress better than the current one is discarded. Training runs in a thread. A
        failure is logged, and the training is retried a day later.
        """
        time_ms = self._time_ms
        is_tried = 0 <= time_ms - self._tried_ms < RETRAIN_MS
        if not self._sessions.is_enough or self._is_training or is_tried:
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
        listing = await self._sync()
        newest = max(listing.newest, *store.dictionaries, 0)
        used = store.dictionaries.get(newest)
        is_full = len(store.dictionaries) >= MAX_DICTIONARIES or newest >= LAST_VERSION
        if is_full or (used is not None and time_ms - used.created_ms < RETRAIN_MS):
            return False
        samples = await self._sessions.load(store)
        dictionary = await asyncio.to_thread(train_if_better, samples, newest + 1, time_ms, used)
        if dictionary is None or not await store.run(dictionaries.add(store.keys, dictionary)):
            return False
        known = facts(op="dictionaries", namespace=store.keys.namespace)
        log.info(
            "dictionary %d was trained on the originals of %d people", dictionary.version, len(samples), extra=known
        )
        return True


def _is_settled(dictionary: Dictionary, time_ms: int) -> bool:
    return time_ms - dictionary.created_ms >= SETTLED_MS


def train_if_better(samples: Blocks, version: int, time_ms: int, used: Dictionary | None) -> Dictionary | None:
    """Return a dictionary if it compresses the newest samples better than `used` does, else `None`.

    It is trained on the other samples, which cannot serve for the comparison: `used` may have been trained on them too.
    """
    blocks = [(person, elements) for person, of_person in samples.items() for elements in of_person]
    older = len(blocks) - max(1, len(blocks) // _HELD_OUT)
    trained_on: dict[Person, list[Sequence[bytes]]] = {}
    for person, elements in blocks[:older]:
        trained_on.setdefault(person, []).append(elements)
    content = train_dictionary(trained_on)
    if content is None:
        return None
    trained = Dictionary(version, time_ms, content)
    before, after = (
        sum(len(encode_block(1, elements, dictionary)) for _, elements in blocks[older:])
        for dictionary in (used, trained)
    )
    return trained if after <= _GAIN * before else None

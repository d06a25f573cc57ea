"""The provider that a strategy asks. While it answers nobody, one worker of all tries it again from time to time."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from enum import Enum

from redismem.errors import CorruptSession, ProviderUnavailable, RedismemError
from redismem.events import facts
from redismem.protocol.ids import nonce
from redismem.protocol.queue import provider_pauses
from redismem.protocol.queue.provider_pauses import Pause
from redismem.store.store import Store
from redismem.workers.failures import log_failure, reason_of

log = logging.getLogger("redismem.worker")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
# A provider that asks for more is asked again then: nobody shall wait for it for days.
_LONGEST_RETRY_AFTER_S = 3_600.0
_random = random.SystemRandom()


class Answering(Enum):
    """Whether a provider may be asked: by everybody, by nobody, or by the one who gets the `probe`."""

    YES = 1
    NO = 2
    PERHAPS = 3


class Provider:
    """What all workers of a namespace know of one provider. Without a name, nobody is asked: it always answers."""

    def __init__(self, store: Store, name: str | None) -> None:
        self._store = store
        self._name = name
        self._lease_ms = int(store.settings.lease_s * 1000)
        self._noted = b""
        """What is noted of it in Redis, as it was seen last."""
        self._before = b""
        """What was noted before this worker took the probe that it has; empty: it has none."""
        self._answered_ms = 0
        """When it was last asked by this worker, and answered."""

    @property
    def is_paused(self) -> bool:
        """Whether it is, as this worker has seen it last, on whatever tick that was."""
        return Pause.decode(self._noted) is not None

    @property
    def is_probed(self) -> bool:
        """Whether this worker is the one to try it, and has no answer yet."""
        return bool(self._before)

    @property
    def failing_since_ms(self) -> int | None:
        """Since when it has answered nobody; None if it does."""
        pause = Pause.decode(self._noted)
        return None if pause is None else pause.since_ms

    async def look(self, now_ms: int) -> Answering:
        """Whether it may be asked. Raises StoreUnavailable."""
        if self._name is None:
            return Answering.YES
        before = Pause.decode(self._noted)
        try:
            self._noted = await self._store.run(provider_pauses.noted(self._store.keys, self._name))
        except CorruptSession:  # a key of a foreign type, which is no session's: nothing can be noted
            self._noted = b""
        pause = Pause.decode(self._noted)
        if pause is None:
            if before is not None:
                self._say_it_answers(before, now_ms)
            return Answering.YES
        if before is None:
            self._say_it_is_paused(pause, now_ms)
        return Answering.NO if pause.until_ms > now_ms else Answering.PERHAPS

    async def probe(self, now_ms: int) -> bool:
        """Whether this worker may ask it now, once: no other gets that while this one may be at it."""
        before, pause = self._noted, Pause.decode(self._noted)
        if pause is None or self.is_probed:
            return False
        if not await self._note(replace(pause, until_ms=now_ms + self._lease_ms)):
            return False
        self._before = before
        return True

    async def keep_probe(self, now_ms: int) -> None:
        """Notes that the provider is still being asked: nobody else is to begin."""
        pause = Pause.decode(self._noted)
        if self.is_probed and pause is not None:
            await self._note(replace(pause, until_ms=now_ms + self._lease_ms))

    async def give_probe_back(self) -> None:
        """Leaves the probe to another worker, or for a later time, if it was not used."""
        if self._before:
            before, self._before = self._before, b""
            await self._note(Pause.decode(before))

    async def answered(self, asked_ms: int) -> None:
        """Notes that the provider gave an answer, usable or not, to what it was asked then."""
        self._answered_ms = max(asked_ms, self._answered_ms)
        if (pause := Pause.decode(self._noted)) is not None and self.is_probed:
            self._before = b""
            # Once more if it was not as this worker had seen it: whatever is noted now, it does answer.
            if await self._note(None) or await self._note(None):
                self._say_it_answers(pause, asked_ms)

    async def failed(self, error: ProviderUnavailable, since_ms: int | None, now_ms: int) -> None:
        """Pauses the provider, longer each time; not if others were answered since this session failed first.

        What others noted since this worker looked, stays. Raises nothing.
        """
        if self._name is None:
            return
        before = Pause.decode(self._noted) if self.is_probed else None
        if before is None and self.is_paused:
            return  # one of several that were under way when it was paused
        if before is None and error.perhaps_request and since_ms is not None and since_ms < self._answered_ms:
            return
        self._before = b""
        count = 1 if before is None else before.failures_count + 1
        first_ms = now_ms if before is None else before.since_ms
        pause = Pause(first_ms, now_ms, now_ms + int(_pause_s(error, count) * 1000), count, reason_of(error))
        if await self._note(pause):
            self._say_it_is_paused(pause, now_ms)

    async def _note(self, pause: Pause | None) -> bool:
        """Whether it could be noted, as nobody else has noted anything since this worker looked."""
        assert self._name is not None
        value = b"" if pause is None else pause.encode(nonce())
        call = provider_pauses.note(self._store.keys, self._name, self._noted, value)
        try:
            self._noted = await self._store.run(call)
        except RedismemError as error:  # the next tick looks again
            log_failure(f"the pause of {self._name} could not be noted", error, facts(op="provider"))
            return False
        return self._noted == value

    def _say_it_is_paused(self, pause: Pause, now_ms: int) -> None:
        known = facts(op="provider", reason=pause.reason, backoff_ms=max(0, pause.until_ms - now_ms))
        log.warning(
            "%s is paused %s, after %d failure%s in %.0f s: %s",
            *(self._name, _how_long(known["backoff_ms"]), pause.failures_count, "s" * (pause.failures_count > 1)),
            (now_ms - pause.since_ms) / 1000,
            pause.reason,
            extra=known,
        )

    def _say_it_answers(self, pause: Pause, now_ms: int) -> None:
        known = facts(op="provider", outcome="ok", duration_ms=now_ms - pause.since_ms)
        log.info("%s answers again, after %.0f s", self._name, known["duration_ms"] / 1000, extra=known)


def _how_long(backoff_ms: int) -> str:
    return f"for {backoff_ms / 1000:.1f} s" if backoff_ms >= 50 else "and due to be tried again now"


def _pause_s(error: ProviderUnavailable, count: int) -> float:
    """How many seconds to pause: as long as the provider asks for, and never shorter than its failures make it."""
    longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(count, 30))
    asked_s = error.retry_after_s if error.retry_after_s is not None and error.retry_after_s > 0 else 0.0
    return max(_random.uniform(longest_s / 2, longest_s), min(asked_s, _LONGEST_RETRY_AFTER_S))

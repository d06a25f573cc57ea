"""Pause a provider that is down, for all workers of a namespace. One worker at a time probes it."""

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
# A provider that asks for a longer pause is probed after this time anyway.
_LONGEST_RETRY_AFTER_S = 3_600.0
_random = random.SystemRandom()


class Availability(Enum):
    """The availability of a provider: any worker may call it, none may, or only the worker that wins `probe`."""

    AVAILABLE = 1
    PAUSED = 2
    PROBE = 3


class Provider:
    """A strategy's provider, as all workers of a namespace see it. Without a name it is always available."""

    def __init__(self, store: Store, name: str | None) -> None:
        self._store = store
        self._name = name
        self._lease_ms = int(store.settings.lease_s * 1000)
        self._pause_value = b""
        """The encoded pause, as this worker last read it from Redis; empty if the provider is not paused."""
        self._value_before_probe = b""
        """The encoded pause before this worker took the probe; empty if this worker does not have the probe."""
        self._answered_ms = 0
        """The start of this worker's last call that the provider answered."""

    @property
    def is_paused(self) -> bool:
        """True if the provider was paused when this worker last read its state."""
        return Pause.decode(self._pause_value) is not None

    @property
    def is_probed(self) -> bool:
        """True if this worker has the probe and no answer from the provider yet."""
        return bool(self._value_before_probe)

    @property
    def failing_since_ms(self) -> int | None:
        """The time since which the provider has been down; `None` if it is available."""
        pause = Pause.decode(self._pause_value)
        return None if pause is None else pause.since_ms

    async def look(self, now_ms: int) -> Availability:
        """Read the pause from Redis and return whether the provider may be called. Raises StoreUnavailable."""
        if self._name is None:
            return Availability.AVAILABLE
        before = Pause.decode(self._pause_value)
        try:
            self._pause_value = await self._store.run(provider_pauses.read_pause(self._store.keys, self._name))
        except CorruptSession:  # the key has a foreign type, so no pause can be stored
            self._pause_value = b""
        pause = Pause.decode(self._pause_value)
        if pause is None:
            if before is not None:
                self._log_recovery(before, now_ms)
            return Availability.AVAILABLE
        if before is None:
            self._log_pause(pause, now_ms)
        return Availability.PAUSED if pause.until_ms > now_ms else Availability.PROBE

    async def probe(self, now_ms: int) -> bool:
        """Take the probe, which no other worker gets until its lease expires. False if another worker was faster."""
        before, pause = self._pause_value, Pause.decode(self._pause_value)
        if pause is None or self.is_probed:
            return False
        if not await self._write_pause(replace(pause, until_ms=now_ms + self._lease_ms)):
            return False
        self._value_before_probe = before
        return True

    async def extend_probe(self, now_ms: int) -> None:
        """Extend the lease of the probe while the provider's answer is pending."""
        pause = Pause.decode(self._pause_value)
        if self.is_probed and pause is not None:
            await self._write_pause(replace(pause, until_ms=now_ms + self._lease_ms))

    async def return_probe(self) -> None:
        """Return the probe if the provider was not called, so that another worker can take the probe."""
        if self._value_before_probe:
            before, self._value_before_probe = self._value_before_probe, b""
            await self._write_pause(Pause.decode(before))

    async def record_answer(self, asked_ms: int) -> None:
        """Record that the provider answered a call that started at `asked_ms`. An unusable answer counts too."""
        self._answered_ms = max(asked_ms, self._answered_ms)
        if (pause := Pause.decode(self._pause_value)) is not None and self.is_probed:
            self._value_before_probe = b""
            # Retried once if another worker changed the pause: the provider does answer.
            if await self._write_pause(None) or await self._write_pause(None):
                self._log_recovery(pause, asked_ms)

    async def record_failure(self, error: ProviderUnavailable, since_ms: int | None, now_ms: int) -> None:
        """Pause the provider, after each failure for longer. Never raises.

        Does nothing if the provider has answered a call since this session's first failure, at `since_ms`. Never
        overwrites a pause that another worker has stored in the meantime.
        """
        if self._name is None:
            return
        before = Pause.decode(self._pause_value) if self.is_probed else None
        if before is None and self.is_paused:
            return  # this call was already in flight when the provider was paused
        if before is None and error.perhaps_request and since_ms is not None and since_ms < self._answered_ms:
            return
        self._value_before_probe = b""
        count = 1 if before is None else before.failures_count + 1
        first_ms = now_ms if before is None else before.since_ms
        pause = Pause(first_ms, now_ms, now_ms + int(_pause_s(error, count) * 1000), count, reason_of(error))
        if await self._write_pause(pause):
            self._log_pause(pause, now_ms)

    async def _write_pause(self, pause: Pause | None) -> bool:
        """Store the pause and return True; return False if another worker changed it since this one read it."""
        assert self._name is not None
        value = b"" if pause is None else pause.encode(nonce())
        call = provider_pauses.write_pause(self._store.keys, self._name, self._pause_value, value)
        try:
            self._pause_value = await self._store.run(call)
        except RedismemError as error:  # the next tick reads it again
            log_failure(f"the pause of {self._name} could not be stored", error, facts(op="provider"))
            return False
        return self._pause_value == value

    def _log_pause(self, pause: Pause, now_ms: int) -> None:
        known = facts(op="provider", reason=pause.reason, backoff_ms=max(0, pause.until_ms - now_ms))
        log.warning(
            "%s is paused %s, after %d failure%s in %.0f s: %s",
            *(self._name, _pause_text(known["backoff_ms"]), pause.failures_count, "s" * (pause.failures_count > 1)),
            (now_ms - pause.since_ms) / 1000,
            pause.reason,
            extra=known,
        )

    def _log_recovery(self, pause: Pause, now_ms: int) -> None:
        known = facts(op="provider", outcome="ok", duration_ms=now_ms - pause.since_ms)
        log.info("%s answers again, after %.0f s", self._name, known["duration_ms"] / 1000, extra=known)


def _pause_text(backoff_ms: int) -> str:
    return f"for {backoff_ms / 1000:.1f} s" if backoff_ms >= 50 else "and due to be tried again now"


def _pause_s(error: ProviderUnavailable, count: int) -> float:
    """Return the pause in seconds: at least the backoff for `count` failures, and as long as the provider asks for."""
    longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(count, 30))
    asked_s = error.retry_after_s if error.retry_after_s is not None and error.retry_after_s > 0 else 0.0
    return max(_random.uniform(longest_s / 2, longest_s), min(asked_s, _LONGEST_RETRY_AFTER_S))

"""The doctor's findings for a page or a scraper that asks often: examined at most once a second, kept in between."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from redismem.events import facts
from redismem.inspection.doctor import Diagnosis, examine_quickly, examine_settings, examine_slowly, unreachable
from redismem.inspection.findings import FAIL, OK, WARN, Finding, acl_of, rank
from redismem.inspection.processes import processes_of
from redismem.store.depths import Depths
from redismem.store.store import Store

log = logging.getLogger("redismem")

QUICK_S = 1.0
SLOW_S = 60.0
SCRAPED_SLOW_S = 300.0
SCRAPE_S = 3.0
_NO_ANSWER = unreachable("Redis does not answer in time")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """The findings about a namespace, worst first, each with the time of its examination in ms since 1970."""

    now_ms: int
    findings: Sequence[tuple[Finding, int]]
    depths: Depths | None
    """The queues; `None` if Redis does not answer, or does not let this user read them."""

    def count(self, verdict: str) -> int:
        """Return the number of findings with this verdict."""
        return sum(finding.verdict == verdict for finding, _ in self.findings)

    def wrong(self) -> dict[str, str]:
        """Return the verdicts that are not ok by the name of the question, worst first."""
        return {finding.name: str(finding.verdict) for finding, _ in self.findings if finding.verdict in (FAIL, WARN)}

    def document(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        depths = self.depths
        return {
            "now_ms": self.now_ms,
            "failed_count": self.count(FAIL),
            "warnings_count": self.count(WARN),
            "findings": [finding.document() | {"checked_ms": checked_ms} for finding, checked_ms in self.findings],
            "acl": acl_of(finding for finding, _ in self.findings),
            "queues": None if depths is None else depths.document(),
            "ticked_ms": None if depths is None else depths.ticking.last_ms,
            "processes": None if depths is None else [each.document() for each in processes_of(depths)],
            "quarantined": [name for finding, _ in self.findings for name in finding.session_ids],
        }


class _Kept(Generic[T]):
    """A value that is made anew once it is too old, by one caller at a time."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self.value: T | None = None
        self.made_ms = 0
        self._make = make
        self._begun_s = float("-inf")
        self._lock = asyncio.Lock()

    async def get(self, fresh_s: float) -> T:
        """Return the value. 0 means one whose making begins after this call."""
        asked_s = time.monotonic()
        async with self._lock:
            if self.value is None or self._begun_s < asked_s - fresh_s:
                begun_s = time.monotonic()
                self.value = await self._make()
                self._begun_s, self.made_ms = begun_s, time.time_ns() // 1_000_000
            return self.value

    def is_older_than(self, seconds: float) -> bool:
        """True if there is no value yet, or the value is older."""
        return self._begun_s < time.monotonic() - seconds


class Checkup:
    """The findings about one namespace, however many callers ask for them.

    Redis is asked the quick questions at most once a second. The slow ones read many keys: they are asked once a minute
    if a person looks, and once in five minutes, in the background, if only a scraper does.
    """

    def __init__(self, store: Store, *, embedded: bool = False) -> None:
        self._quick = _Kept[Diagnosis](partial(examine_quickly, store, embedded=embedded))
        self._slow = _Kept[list[Finding]](partial(examine_slowly, store, embedded=embedded))
        self._settings = store.settings
        self._own: list[tuple[Finding, int]] = []
        self._refreshing: asyncio.Task[None] | None = None

    async def look(self, *, again: bool = False) -> Report:
        """Return all findings. `again` examines everything anew, so that a repair shows at once."""
        diagnosis = await self._quick.get(0 if again else QUICK_S)
        if diagnosis.findings[0].verdict == OK:
            await self._slow.get(0 if again else SLOW_S)
        if again:
            self._own = []
        return self._report(diagnosis)

    async def quick(self) -> Report:
        """Return the quick findings."""
        diagnosis = await self._quick.get(QUICK_S)
        return Report(self._quick.made_ms, self._dated(diagnosis), diagnosis.depths)

    async def scrape(self) -> Report:
        """Return the quick findings, and the slow ones of the last examination, if there was one.

        It takes at most `SCRAPE_S`: a scraper gives up soon, and a Redis that hangs is a finding.
        """
        try:
            async with asyncio.timeout(SCRAPE_S):
                diagnosis = await self._quick.get(0)
        except TimeoutError:
            diagnosis = Diagnosis([_NO_ANSWER], None)
        is_idle = self._refreshing is None or self._refreshing.done()
        if diagnosis.findings[0].verdict == OK and is_idle and self._slow.is_older_than(SCRAPED_SLOW_S):
            self._refreshing = asyncio.create_task(self._refresh())
        return self._report(diagnosis)

    async def aclose(self) -> None:
        """End an examination in the background."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait((self._refreshing,))

    async def _refresh(self) -> None:
        try:
            await self._slow.get(0)
        except Exception as error:  # a task that nothing awaits would fail silently
            kind = type(error).__name__
            log.exception("the slow part of an examination failed: %s", kind, extra=facts(op="look", error=kind))

    def _report(self, diagnosis: Diagnosis) -> Report:
        now_ms = time.time_ns() // 1_000_000
        rows = self._dated(diagnosis)
        if diagnosis.findings[0].verdict == OK:
            rows += [(finding, self._slow.made_ms) for finding in self._slow.value or ()]
        if not self._own:  # only a restart changes the settings, so nothing examines them again unasked
            self._own = [(finding, now_ms) for finding in examine_settings(self._settings)]
        return Report(now_ms, _worst_first([*rows, *self._own]), diagnosis.depths)

    def _dated(self, diagnosis: Diagnosis) -> list[tuple[Finding, int]]:
        return _worst_first([(finding, self._quick.made_ms) for finding in diagnosis.findings])


def _worst_first(rows: list[tuple[Finding, int]]) -> list[tuple[Finding, int]]:
    return sorted(rows, key=lambda row: rank(row[0]))

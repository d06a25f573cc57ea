"""When the queues are looked at: APScheduler ticks, and an append that overflows has its session taken up at once.

All state is in Redis: a missed or doubled tick changes nothing, and any number of processes may tick. So that fifty do
not look at the same queues all the time, they take turns: see `turns`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any

from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from redismem.concurrency.callbacks import awaited
from redismem.context import Receipt
from redismem.errors import RedismemError
from redismem.events import facts
from redismem.models import ChatModel
from redismem.store.store import Store
from redismem.workers import strategies
from redismem.workers.archive import OnEvict, checked
from redismem.workers.eviction import Eviction
from redismem.workers.failures import log_failure
from redismem.workers.leadership import Turns
from redismem.workers.project_extraction import ExtractionWorker
from redismem.workers.strategies import Strategy, provider_of
from redismem.workers.summaries import Worker

Drain = Callable[[], Coroutine[Any, Any, Any]]

_IDLE_TICKS = 10
_SWEEP_TICKS = 60
_EXTRACTION_TICKS = 10


class Scheduler:
    """Workers for one namespace: summaries, the session limit, the sweep, what projects extract from conversations.

    `strategy` None: no summaries are written. `extraction`: the model that reads the conversations of projects which
    wait for it, and those that are about to be evicted; None: they wait, and go unread. It stays the caller's to close.
    `on_evict` is awaited with each transcript before its session goes.
    `stop_s`: how long `stop()` waits for what is in hand.
    """

    def __init__(
        self,
        store: Store,
        strategy: Strategy | None = None,
        *,
        on_evict: OnEvict | None = None,
        extraction: ChatModel | None = None,
        concurrency: int = 16,
        stop_s: float = 10,
    ) -> None:
        on_evict = None if on_evict is None else checked(on_evict)
        self.worker = None if strategy is None else Worker(store, strategy, concurrency=concurrency)
        self.extraction = None if extraction is None else ExtractionWorker(store, extraction)
        self.eviction = Eviction(store, on_evict if self.extraction is None else self.extraction.before(on_evict))
        self._settings = store.settings
        self._store = store
        self._stop_s = stop_s
        self._closes: list[Drain] = []
        self._stopping = False
        self._running: set[asyncio.Task[None]] = set()
        self._last: dict[str, asyncio.Task[None]] = {}
        self._tick_count = 0
        self._ticker: AsyncIOScheduler | None = None
        self._watch: asyncio.Task[None] | None = None
        # Pods that are set up differently do not stand in for each other.
        limits = f"{store.settings.max_sessions}/{store.settings.idle_timeout_ms}"
        self._evictions = f"evictions/{limits}"
        self._summaries = "" if strategy is None else f"summaries/{provider_of(strategy) or type(strategy).__name__}"
        self._extractions = "" if extraction is None else f"extraction/{extraction.name}"
        self._turns = Turns(store, self._works())

    @classmethod
    def from_settings(
        cls, store: Store, *, on_evict: OnEvict | None = None, concurrency: int = 16, stop_s: float = 10
    ) -> Scheduler:
        """Workers as the store's settings say. Raises InvalidSettings."""
        strategy, model = strategies.from_settings(store.settings), strategies.model_from_settings(store.settings)
        scheduler = cls(store, strategy, on_evict=on_evict, extraction=model, concurrency=concurrency, stop_s=stop_s)
        # What was opened here is closed here; a strategy of the caller's own is not.
        opened = (getattr(each, "aclose", None) for each in (strategy, model))
        scheduler._closes = [close for close in opened if close is not None]
        return scheduler

    async def start(self) -> None:
        """Begins to tick, in the running event loop."""
        ticker = AsyncIOScheduler(
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}, timezone=UTC
        )
        if (ticks := logging.getLogger("apscheduler")).level == logging.NOTSET:
            ticks.setLevel(logging.WARNING)  # it logs two lines a tick
        tick_s = self._settings.tick_s

        async def tick() -> None:
            # In a task of ours: APScheduler cancels its own when it shuts down.
            self._begin_alone("tick", self.tick)

        job = ticker.add_job(tick, "interval", seconds=tick_s, jitter=tick_s / 10, next_run_time=datetime.now(UTC))
        ticker.start()
        self._ticker = ticker
        self._watch = asyncio.create_task(self._keep_ticking(job))

    async def _keep_ticking(self, job: Job) -> None:
        """APScheduler goes by this machine's time of day: set back by an hour, it would not tick for as long."""
        while True:
            await asyncio.sleep(self._settings.tick_s)
            now = datetime.now(UTC)
            if job.next_run_time is not None and (job.next_run_time - now).total_seconds() > 2 * self._settings.tick_s:
                job.modify(next_run_time=now)

    @property
    def holds(self) -> tuple[str, ...]:
        """What this process looks after for all pods of the namespace, as of its last tick."""
        return tuple(sorted(self._turns.held))

    def _works(self) -> dict[str, Callable[[], bool]]:
        works: dict[str, Callable[[], bool]] = {self._evictions: lambda: self.eviction.is_crowded}
        if (worker := self.worker) is not None:
            works[self._summaries] = lambda: worker.is_crowded
        if (extraction := self.extraction) is not None:
            works[self._extractions] = lambda: extraction.is_crowded
        return works

    async def tick(self) -> None:
        """Begins what this process is to do on this tick, one of every `tick_s`. Raises StoreUnavailable."""
        count, self._tick_count = self._tick_count, self._tick_count + 1
        mine = await self._turns.take()
        if self._evictions in mine:
            # Sessions beyond the limit are looked for on each tick; nobody waits for the idle ones to go.
            for_idle = count % _IDLE_TICKS == 0
            look = self.eviction.enforce if for_idle else self.eviction.enforce_limit
            if not self._begin_alone("evictions", look, self._evictions) and for_idle:
                # Whoever is chosen lives on. A drain that waits for a slow on_evict must not let the others expire.
                self._begin_alone("idle", self.eviction.queue_idle, self._evictions)
            if count % _SWEEP_TICKS == 0:
                self._begin_alone("sweep", self.eviction.sweep)
        if self.worker is not None:
            # A drain that waits for a slow model must not keep the next one from looking at the other sessions.
            is_mine = self._summaries in mine
            self._begin(self.worker.drain if is_mine else self.worker.stand_by, self._summaries)
        if self.extraction is not None and self._extractions in mine and count % _EXTRACTION_TICKS == 0:
            self._begin_alone("extraction", self.extraction.drain, self._extractions)

    def _begin_alone(self, name: str, drain: Drain, work: str | None = None) -> bool:
        """Begins it, unless the last one of this name has not ended: then False."""
        if name in self._last and not self._last[name].done():
            return False
        self._last[name] = self._begin(drain, work)
        return True

    def _begin(self, drain: Drain, work: str | None = None) -> asyncio.Task[None]:
        return self._run(self._logged(drain, work))

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _logged(self, drain: Drain, work: str | None) -> None:
        if self._stopping or self._store.is_away:  # a look at Redis now and then finds out when it is back
            return
        try:
            await awaited(drain)
        except Exception as error:  # the state is in Redis: the next tick goes on from there
            log_failure("a drain stopped early", error, facts(op="drain"))
            if work is not None:
                self._turns.stand_back(work)

    async def stop(self) -> None:
        """Claims nothing more, lets what is in hand end for `stop_s`, then gives it back."""
        self._stopping = True
        ticker, self._ticker = self._ticker, None
        if self._watch is not None:
            self._watch.cancel()
        if ticker is not None:
            ticker.pause()
            await asyncio.sleep(0)  # a tick that has begun ends here
            ticker.shutdown(wait=False)
        self.eviction.stop()
        if self.worker is not None:
            self.worker.stop()
        if self.extraction is not None:
            self.extraction.stop()
        if ticker is not None and not self._store.is_away:
            self._run(self._given_up())
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self._stop_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for close in self._closes:
            await close()

    async def _given_up(self) -> None:
        try:
            await self._turns.give_up()
        except RedismemError as error:  # others miss this process soon enough
            log_failure("another pod takes over only when it misses this one", error, facts(op="tick"))

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Takes up a session whose window this append has made too long, without waiting for a tick."""
        if self._ticker is None or self.worker is None:
            return
        longest = self._settings.overdue_count
        appended_count = receipt.last_seq - receipt.first_seq + 1
        if receipt.window_count > longest >= receipt.window_count - appended_count:
            self._begin(partial(self.worker.attend, session_id))

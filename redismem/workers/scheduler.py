"""Schedule the workers: on each tick of APScheduler, and at once after an append that overflows its window.

All state is in Redis, so a missed or doubled tick does no harm, and any number of processes may tick. The processes
elect leaders, so that they do not all poll the same queues: see `leadership`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from redismem.concurrency.callbacks import run_callback
from redismem.concurrency.loops import call_on
from redismem.context.results import Receipt
from redismem.errors import InvalidSettings, RedismemError
from redismem.events import facts
from redismem.models import ChatModel
from redismem.store.store import Store
from redismem.store.unused_dictionaries import drop_unused
from redismem.workers import strategies
from redismem.workers.archive import OnEvict, validate_on_evict
from redismem.workers.eviction import Eviction
from redismem.workers.failures import log_failure
from redismem.workers.leadership import Leadership
from redismem.workers.project_extraction import ExtractionWorker
from redismem.workers.strategies import Strategy, provider_of
from redismem.workers.summaries import Worker
from redismem.workers.turns import end_dead_turns

Drain = Callable[[], Coroutine[Any, Any, Any]]

_MOST_CONCURRENCY = 10_000
_IDLE_TICKS = 10
_SWEEP_TICKS = 60
_EXTRACTION_TICKS = 10
_LOST_S, _LOST_TICKS = 60, 20


class Scheduler:
    """Workers for one namespace: summaries, the session limit, the sweep, and extraction for projects.

    Args:
        strategy: The writer of the summaries. `None` means the strategy that the settings name; `strategy="none"` there
            turns summaries off. The caller closes its own strategy.
        on_evict: A callable, awaited with each transcript before its session is evicted.
        extraction: The model that reads waiting project conversations, and reads a conversation before it is evicted.
            `None` means the model that the settings name; if they name no model, nothing is extracted. The caller
            closes its own model.
        concurrency: The number of summaries in progress at a time, 1 to 10,000.
        stop_s: The seconds that `stop()` waits for work in progress.
        in_child: True writes the extractive summaries of the settings in a child process at a lower priority, so that
            turns in this process come first. A strategy of the caller's always runs in this process.

    Raises:
        InvalidSettings: An argument cannot be used, or the settings name a model that cannot be used.
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
        in_child: bool = False,
    ) -> None:
        on_evict = None if on_evict is None else validate_on_evict(on_evict)
        concurrency = validate_concurrency(concurrency)
        opened: list[object] = []  # only what is opened here is closed here
        if strategy is None:
            opened.append(strategy := strategies.from_settings(store.settings, in_child=in_child))
        if extraction is None:
            opened.append(extraction := strategies.model_from_settings(store.settings))
        self._closes: list[Drain] = [close for each in opened if (close := getattr(each, "aclose", None)) is not None]
        self.worker = None if strategy is None else Worker(store, strategy, concurrency=concurrency)
        self.extraction = None if extraction is None else ExtractionWorker(store, extraction)
        self.eviction = Eviction(
            store, on_evict if self.extraction is None else self.extraction.wrap_on_evict(on_evict)
        )
        self._settings = store.settings
        self._store = store
        self._stop_s, self._stopping = stop_s, False
        self._running: set[asyncio.Task[None]] = set()
        self._last: dict[str, asyncio.Task[None]] = {}
        self._tick_count, self._ticked_s = 0, math.inf
        self._ticker: AsyncIOScheduler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        # Pods with different settings must not lead for each other.
        limits = f"{store.settings.max_sessions}/{store.settings.idle_timeout_ms}"
        self._evictions = f"evictions/{limits}"
        self._summaries = "" if strategy is None else f"summaries/{provider_of(strategy) or type(strategy).__name__}"
        self._extractions = "" if extraction is None else f"extraction/{extraction.name}"
        self._leadership = Leadership(store, self._works())

    async def start(self) -> None:
        """Start to tick in the running event loop. A second call has no effect."""
        if self._ticker is not None:
            return
        self.eviction.warnings.tell_of_default()
        ticker = AsyncIOScheduler(
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}, timezone=UTC
        )
        if (ticks := logging.getLogger("apscheduler")).level == logging.NOTSET:
            ticks.setLevel(logging.WARNING)  # APScheduler logs two lines per tick
        tick_s = self._settings.tick_s

        async def tick() -> None:
            # In our own task: APScheduler cancels its tasks when it shuts down.
            if self._start_unless_running("tick", self.tick):
                self._ticked_s = time.monotonic()

        job = ticker.add_job(tick, "interval", seconds=tick_s, jitter=tick_s / 10, next_run_time=datetime.now(UTC))
        ticker.start()
        self._ticker = ticker
        self._loop = asyncio.get_running_loop()
        self._ticked_s = time.monotonic()
        self._watch = asyncio.create_task(self._keep_ticking(ticker, job))

    async def _keep_ticking(self, ticker: AsyncIOScheduler, job: Job) -> None:
        """Reschedule a late tick: if the wall clock is set back by an hour, APScheduler does not tick for an hour.

        An event loop that ends cancels this task first. From then on no tick may start a task, which nothing would end.
        """
        late_s = 2 * self._settings.tick_s
        try:
            while True:
                await asyncio.sleep(self._settings.tick_s)
                now = datetime.now(UTC)
                if job.next_run_time is not None and (job.next_run_time - now).total_seconds() > late_s:
                    job.modify(next_run_time=now)
        finally:
            ticker.pause()

    @property
    def holds(self) -> tuple[str, ...]:
        """The kinds of work that this process led at its last tick."""
        return tuple(sorted(self._leadership.held))

    @property
    def is_ticking(self) -> bool:
        """True unless no tick has begun for 20 ticks and a minute: one hangs. An outage of Redis stops no tick."""
        return time.monotonic() - self._ticked_s <= _LOST_S + _LOST_TICKS * self._settings.tick_s

    def _works(self) -> dict[str, Callable[[], bool]]:
        works: dict[str, Callable[[], bool]] = {self._evictions: lambda: self.eviction.is_crowded}
        if (worker := self.worker) is not None:
            works[self._summaries] = lambda: worker.is_crowded
        if (extraction := self.extraction) is not None:
            works[self._extractions] = lambda: extraction.is_crowded
        return works

    async def tick(self) -> None:
        """Start the work of one tick. APScheduler calls this every `tick_s`.

        Raises:
            StoreUnavailable: Redis does not answer before the deadline.
        """
        count, self._tick_count = self._tick_count, self._tick_count + 1
        mine = await self._leadership.acquire()
        if self._evictions in mine:
            # The session limit is enforced on each tick; idle sessions can wait for a later one.
            for_idle = count % _IDLE_TICKS == 0
            look = self.eviction.enforce if for_idle else self.eviction.enforce_limit
            if not self._start_unless_running("evictions", look, self._evictions) and for_idle:
                # Queue idle sessions even while a slow on_evict holds up the drain: unqueued, they would expire unseen.
                self._start_unless_running("idle", self.eviction.queue_idle, self._evictions)
            if count % max(1, round(self._settings.live_lease_s / 4 / self._settings.tick_s)) == 0:
                self._start_unless_running("turns", partial(end_dead_turns, self._store))
            if count % _SWEEP_TICKS == 0:
                self._start_unless_running("sweep", self.eviction.sweep)
                self._start_unless_running("dictionaries", self._drop_dictionaries)
        if self.worker is not None:
            # Drains may overlap: one that waits for a slow model must not hold up other sessions.
            is_mine = self._summaries in mine
            self._start(self.worker.drain if is_mine else self.worker.stand_by, self._summaries)
        if self.extraction is not None and self._extractions in mine and count % _EXTRACTION_TICKS == 0:
            self._start_unless_running("extraction", self.extraction.drain, self._extractions)

    async def _drop_dictionaries(self) -> None:
        await drop_unused(self._store, await self._store.server_time_ms())

    def _start_unless_running(self, name: str, drain: Drain, work: str | None = None) -> bool:
        """Start this drain. False if the previous drain of this name is still running."""
        if name in self._last and not self._last[name].done():
            return False
        self._last[name] = self._start(drain, work)
        return True

    def _start(self, drain: Drain, work: str | None = None) -> asyncio.Task[None]:
        return self._run(self._run_logged(drain, work))

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run_logged(self, drain: Drain, work: str | None) -> None:
        if self._stopping or self._store.is_away:  # the store itself probes Redis until it is back
            return
        try:
            await run_callback(drain)
        except Exception as error:  # the state is in Redis: the next tick continues from there
            log_failure("a drain stopped early", error, facts(op="drain"))
            if work is not None:
                self._leadership.back_off(work)

    async def stop(self) -> None:
        """Stop claiming, wait up to `stop_s` for work in progress, then cancel it and release its sessions.

        If this call is cancelled, it cancels the work at once.
        """
        self._stopping = True
        for each in (self.eviction, self.worker, self.extraction):
            if each is not None:
                each.stop()
        async with AsyncExitStack() as steps:
            for close in self._closes:
                steps.push_async_callback(close)
            if self._loop is asyncio.get_running_loop():  # otherwise the tasks have ended with their loop
                await self._end_tasks()

    async def _end_tasks(self) -> None:
        ticker, self._ticker = self._ticker, None
        if self._watch is not None:
            self._watch.cancel()
        if ticker is not None:
            self._run(self._end_ticks(ticker))  # as a task, for which a second `stop` at the same time waits too
        if self._running:
            running = list(self._running)
            try:
                await asyncio.wait(running, timeout=self._stop_s)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _end_ticks(self, ticker: AsyncIOScheduler) -> None:
        ticker.pause()
        try:
            await asyncio.sleep(0)  # lets a tick that has started finish
        finally:
            ticker.shutdown(wait=False)
        if not self._store.is_away:
            await self._release_leadership()

    async def _release_leadership(self) -> None:
        if "tick" in self._last:
            await asyncio.wait([self._last["tick"]])  # it would take the holds again
        try:
            await self._leadership.release()
        except RedismemError as error:  # the hold expires soon
            log_failure(
                "leadership was not released, so another pod takes over when it expires", error, facts(op="tick")
            )

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Start the summary of a session whose window this append made too long, without waiting for a tick.

        The append may have run on another event loop than the workers.
        """
        if self._ticker is None or self._loop is None or self.worker is None:
            return
        longest = self._settings.overdue_count
        appended_count = receipt.last_seq - receipt.first_seq + 1
        if receipt.window_count > longest >= receipt.window_count - appended_count:
            call_on(self._loop, self._start, partial(self.worker.attend, session_id))


def validate_concurrency(concurrency: int) -> int:
    """Return the number, or raise InvalidSettings: with 0, each summary would wait for ever."""
    if type(concurrency) is not int or not 1 <= concurrency <= _MOST_CONCURRENCY:
        raise InvalidSettings(f"concurrency must be a whole number from 1 to {_MOST_CONCURRENCY:,}")
    return concurrency

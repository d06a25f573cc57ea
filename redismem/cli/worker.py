"""`redismem worker`: write summaries, enforce the session limit and sweep, until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from redismem.cli.depths import sessions_line
from redismem.cli.logs import logs_on_stderr
from redismem.cli.options import Url, Yes, flag, option, within
from redismem.cli.place import HOW_TO_NAME_REDIS, ChosenStore, open_memory
from redismem.cli.stopping import stop_signals
from redismem.cli.terminal import Stop, ask, print_json
from redismem.events import facts
from redismem.inspection.figures import plural
from redismem.memory.arguments import make_embedder
from redismem.memory.memory import Memory
from redismem.settings.extras import require_extra
from redismem.store.agreement import given_removals, is_given
from redismem.store.depths import depths_of
from redismem.workers.outcomes import SummaryOutcome

if TYPE_CHECKING:
    from redismem.metrics import Metrics
    from redismem.workers.archive import OnEvict
    from redismem.workers.scheduler import Scheduler

Concurrency = Annotated[int, within(1, 10_000, "Sessions processed at the same time.")]
_STRATEGY_HELP = "Treatment of older messages. [default: `REDISMEM_STRATEGY`, else summarize]"
Strategy = Annotated[Literal["summarize", "trim", "none"] | None, option(_STRATEGY_HELP)]
_EVICT_HELP = "Append the transcript of each evicted session to this file, one JSON line per session."
OnEvictFile = Annotated[Path | None, option(_EVICT_HELP)]
StopS = Annotated[float, within(0, 3_600, "Seconds to finish work in progress before stopping.")]
_OVERRIDE_HELP = (
    "Record REDISMEM_MAX_SESSIONS, REDISMEM_IDLE_TIMEOUT_S, REDISMEM_KEEP_ORIGINALS and REDISMEM_EMBED as far as "
    "they are set, even if they remove more or the recorded embedder's vectors; asks first."
)
Override = Annotated[bool, flag(_OVERRIDE_HELP)]
Once = Annotated[bool, flag("Process what is due now, then exit.")]
JsonLogs = Annotated[bool, flag("Log as JSON; with --once also print one document per namespace on stdout.", "--json")]
_NAMESPACES_HELP = "The tenants to work for, separated by commas; each is isolated from the others."
Namespaces = Annotated[str, option(_NAMESPACES_HELP, "REDISMEM_NAMESPACE", "--namespace")]
_PORT_HELP = "Serve /livez and /metrics at this port; 0 picks a free one. [default: none]"
MetricsPort = Annotated[int | None, within(0, 65_535, _PORT_HELP)]
_HOST_HELP = "The address for `--metrics-port`. Beyond loopback, anybody who reaches it reads the metrics."
MetricsHost = Annotated[str, option(_HOST_HELP)]
_NICE_HELP = (
    "Lower the priority of this process by this nice value, so that turns on the same machine come first; 0 keeps "
    "the priority. Windows has none."
)
Nice = Annotated[int, within(0, 19, _NICE_HELP)]
_FAILURES = (
    *(SummaryOutcome.FAILED, SummaryOutcome.DEAD, SummaryOutcome.PAUSED),
    *(SummaryOutcome.UNAVAILABLE, SummaryOutcome.STOPPING),
)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker."""

    concurrency: Concurrency = 16
    strategy: Strategy = None
    on_evict_file: OnEvictFile = None
    stop_s: StopS = 10
    nice: Nice = 10
    once: Once = False
    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = "127.0.0.1"
    override: Override = False
    yes: Yes = False


async def worker(
    *,
    options: Annotated[WorkerOptions, Parameter(name="*")] = WorkerOptions(),
    url: Url = None,
    namespaces: Namespaces = "default",
    as_json: JsonLogs = False,
) -> int:
    """Summarise and evict sessions, until SIGTERM or SIGINT.

    Run any number of workers, on any machines. `REDISMEM_MODEL_PROVIDER` (extractive, openai, gemini, anthropic),
    `REDISMEM_MODEL` and `REDISMEM_MODEL_API_KEY` select the summary model; `REDISMEM_EMBED` and
    `REDISMEM_EMBED_API_KEY` select the embedding model for stored messages. `REDISMEM_MAX_SESSIONS` (1,000) and
    `REDISMEM_IDLE_TIMEOUT_S` (24 h) decide which sessions are evicted: give a worker the same values as the pods. With
    the defaults it evicts nothing that pods with other settings want to keep.

    On a signal the worker takes no new work, gives the work in progress `--stop-s` seconds to finish, returns the rest
    to the queue and exits. A second signal ends it at once; nothing is lost, but its sessions wait until their leases
    expire.

    Logs go to stderr, one line per event: hashes of session ids and durations, never message text.
    `redismem list dead` shows ids with their hashes. `--metrics-port` serves `/livez` and `/metrics`, without a key:
    they show the names of the namespaces, and no ids or texts. Exit code 1: `--once` left work undone.
    """
    names = _split(namespaces)
    if options.override:
        ask("Record the settings of this environment, even if they remove more?", yes=options.yes)
    on_evict = None if options.on_evict_file is None else _open_archive(options.on_evict_file, names)
    getattr(os, "nice", int)(options.nice)  # Windows has no `os.nice`
    metrics = None if options.metrics_port is None else _open_metrics(once=options.once)
    overrides: dict[str, Any] = {} if options.strategy is None else {"strategy": options.strategy}
    overrides["on_event"] = None if metrics is None else metrics.event
    with logs_on_stderr(as_json=as_json) as log, stop_signals() as stopping:
        async with contextlib.AsyncExitStack() as stack:
            places = [await stack.enter_async_context(open_memory(url, name, **overrides)) for name in names]
            await _prepare(places, override=options.override)
            pairs = [(memory, _make_scheduler(memory, on_evict, options)) for memory, _ in places]
            if options.once:
                runs = (_run_once(*pair, stopping, options.stop_s, as_json=as_json) for pair in pairs)
                return max([await run for run in runs])
            if metrics is not None:
                port = _serve_metrics(pairs, metrics, options.metrics_host, options.metrics_port or 0)
                await stack.enter_async_context(port)
            for memory, place in places:
                _log_start(log, memory, place, options.concurrency)
            await _run_all(stopping, [_run_until_stopped(scheduler, stopping, log) for _, scheduler in pairs])
    return 0


async def _prepare(places: Sequence[tuple[Memory, ChosenStore]], *, override: bool) -> None:
    """Give each memory its embedder, and record its settings if asked.

    Raises Stop for the embedded store, and if there is no setting to record.
    """
    if places[0][1].embedded:
        raise Stop(f"a worker needs a store shared with the pods: {HOW_TO_NAME_REDIS}", 2)
    settings = places[0][0].settings
    if override and not given_removals(settings) and not is_given(settings, "embed"):
        raise Stop(
            "--override has nothing to record: set REDISMEM_MAX_SESSIONS, REDISMEM_IDLE_TIMEOUT_S, "
            "REDISMEM_KEEP_ORIGINALS or REDISMEM_EMBED",
            2,
        )
    for memory, _ in places:
        embedder = memory.store.embedder = make_embedder(None, memory.settings)  # the memory closes it
        if override:
            await memory.store.agreement.override_record(None if embedder is None else embedder.name)


def _open_metrics(*, once: bool) -> Metrics:
    if once:
        raise Stop("--metrics-port with --once: nothing could scrape it before the worker exits", 2)
    require_extra("server", "redismem worker --metrics-port 0")
    from redismem.metrics import Metrics

    return Metrics()


@contextlib.asynccontextmanager
async def _serve_metrics(
    pairs: Sequence[tuple[Memory, Scheduler]], metrics: Metrics, host: str, port: int
) -> AsyncIterator[None]:
    from redismem.web.worker_port import WorkerPort, serve_port

    memories, schedulers = zip(*pairs, strict=True)
    async with serve_port(WorkerPort(memories, metrics, schedulers), host, port) as address:
        print(f"metrics at {address}/metrics", flush=True)
        yield


def _split(namespaces: str) -> list[str]:
    """Return the names in a list separated by commas. Raises Stop."""
    names = [name.strip() for name in namespaces.split(",")]
    if "" in names or len(names) > len(set(names)):
        raise Stop("--namespace is a name, or several different names, separated by commas", 2)
    return names


async def _run_all(stopping: asyncio.Event, runs: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run the workers of all namespaces. If one fails, stop the others, so that a supervisor restarts all."""
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        await asyncio.gather(*tasks)
    finally:
        stopping.set()
        await asyncio.gather(*tasks, return_exceptions=True)


def _open_archive(path: Path, namespaces: Sequence[str]) -> OnEvict:
    """Return the file of transcripts. Raises Stop if those of these namespaces cannot be written to it."""
    from redismem.workers.archive import JsonlArchive

    can_append = os.access(path, os.W_OK) and path.is_file() if path.exists() else os.access(path.parent, os.W_OK)
    if not can_append:
        raise Stop(f"cannot write to the file {path}", 2)
    if len(namespaces) > 1:
        raise Stop("a file of transcripts does not name their namespace: run one worker per namespace", 2)
    return JsonlArchive(path)


def _make_scheduler(memory: Memory, on_evict: OnEvict | None, options: WorkerOptions) -> Scheduler:
    from redismem.workers.scheduler import Scheduler

    return Scheduler(memory.store, on_evict=on_evict, concurrency=options.concurrency, stop_s=options.stop_s)


def _log_start(log: logging.Logger, memory: Memory, place: ChosenStore, concurrency: int) -> None:
    settings = memory.settings
    by = f" by {settings.model_provider}" if settings.strategy == "summarize" else ""
    log.info(
        "started on %s, namespace %s: %s%s%s, concurrency %d, at most %d sessions, idle timeout %g s",
        *(place.name, memory.store.keys.namespace, settings.strategy, by, _embedder_words(memory), concurrency),
        *(memory.store.agreement.session_limit, settings.idle_timeout_s),
        extra=facts(op="worker", namespace=memory.store.keys.namespace),
    )


def _embedder_words(memory: Memory) -> str:
    """Return the part of the start line that names the embedding model; "" if there is no embedder."""
    embedder, settings = memory.store.embedder, memory.settings
    if embedder is None:
        return ""
    if settings.strategy == "none" or not memory.store.agreement.keeps_originals:
        return ", no vectors: no messages are kept"
    return f", vectors by {embedder.name}"


async def _run_until_stopped(scheduler: Scheduler, stopping: asyncio.Event, log: logging.Logger) -> None:
    await scheduler.start()
    start_s = time.monotonic()
    try:
        await stopping.wait()
        log.info("stopping: taking no new work", extra=facts(op="worker"))
        start_s = time.monotonic()
    finally:
        await scheduler.stop()
    outcomes = {} if scheduler.worker is None else scheduler.worker.outcomes
    duration_ms = int((time.monotonic() - start_s) * 1000)
    extra = facts(op="worker", duration_ms=duration_ms)
    log.info("stopped in %d ms; sessions: %s", duration_ms, _count_words(outcomes), extra=extra)


def _count_words(outcomes: Mapping[SummaryOutcome, int]) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())) or "none"


async def _run_once(
    memory: Memory, scheduler: Scheduler, stopping: asyncio.Event, stop_s: float, *, as_json: bool
) -> int:
    """Do all due work, print what was done, and return the exit code."""
    work, stop = asyncio.create_task(_drain(scheduler)), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
        done = await work if work.done() else None
        if done is None:
            for each in (scheduler.worker, scheduler.extraction, scheduler.eviction):
                if each is not None:
                    each.stop()
            await asyncio.wait((work,), timeout=stop_s)
    finally:
        for task in (work, stop):
            task.cancel()
        await asyncio.gather(work, stop, return_exceptions=True)
        await scheduler.stop()
    outcomes = {} if scheduler.worker is None else dict(scheduler.worker.outcomes)
    left = await depths_of(memory.store)
    good = done is not None and left.over <= 0 and not any(outcomes.get(each) for each in _FAILURES)
    summaries_count, evicted_count = done or (outcomes.get(SummaryOutcome.OK, 0), None)
    if as_json:
        counts = {"summaries_count": summaries_count, "evicted_count": evicted_count, "outcomes": outcomes}
        print_json({"namespace": memory.store.keys.namespace, **counts, "left": left.document(), "good": good})
        return 0 if good else 1
    unusual: Mapping[SummaryOutcome, int] = {
        outcome: count for outcome, count in outcomes.items() if outcome is not SummaryOutcome.OK
    }
    more = f" ({_count_words(unusual)})" if unusual else ""
    written = f"{summaries_count:,} {'summary' if summaries_count == 1 else 'summaries'} written"
    evicted = plural(evicted_count or 0, "session")
    print(f"namespace {memory.store.keys.namespace}: {written}, {evicted} evicted{more}")
    queues = ", ".join(f"{left.total(name).count:,} {name}" for name in ("overdue", "leased", "dead", "evictions"))
    print(f"left: {queues}; {sessions_line(left)}")
    return 0 if good else 1


async def _drain(scheduler: Scheduler) -> tuple[int, int]:
    """Do all due work, and return the numbers of summaries and evictions."""
    written = 0 if scheduler.worker is None else await scheduler.worker.drain()
    if scheduler.extraction is not None:
        await scheduler.extraction.drain()
    return written, await scheduler.eviction.enforce()

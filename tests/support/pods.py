"""Processes that tests start: the module with ROLE ARGUMENT…, each with a memory of its own.

The roles are in `ROLES`. A role that runs until it is stopped ends by SIGTERM, or as soon as its standard input ends,
so no process outlives its test. A producer writes a line of JSON to its ledger for each acknowledged append.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from redismem import Memory, Message, Receipt, RedismemError, Settings, StoreUnavailable, Unconfirmed
from redismem.blocking import memory as blocking
from redismem.events import Event
from redismem.models import Draft, open_model
from redismem.project.project import Project
from redismem.protocol.project import imports
from redismem.workers import dictionaries, samples
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker
from support.forks import Fork
from support.writers import Echo

PRODUCERS_COUNT = 3
PATIENT = Settings(deadline_s=60, reply_timeout_s=20)
SWARM = Settings(
    shards=4,
    lease_s=0.4,
    tick_s=0.05,
    max_attempts=100,  # each killed worker leaves one attempt behind
    max_backoff_s=0.1,
    max_summary_bytes=1024 * 1024,
    deadline_s=60,
    reply_timeout_s=10,  # long, so that an append is retried only after a lost connection: a session remembers 16
)
SWARM_SESSIONS = [f"shared-{number}" for number in range(150)]
CONFIRM = int(os.environ.get("FAULT_CONFIRM", "0"))
CAMPAIGN = Settings(
    shards=16,
    tick_s=0.2,
    lease_s=2,
    max_sessions=100_000,
    max_attempts=100,
    max_backoff_s=0.2,
    deadline_s=5,
    confirm=CONFIRM,
)
CAMPAIGN_SESSIONS = [f"shared-{number}" for number in range(4)]
CHATS = Settings(strategy="none", shards=4, deadline_s=60)
CHAT_SESSIONS = [f"shared-{number}" for number in range(6)]
T = TypeVar("T")


def start_pod(role: str, *arguments: object, **environment: str) -> Fork:
    """Start a process with this role; `environment` adds to the test's own variables."""
    return Fork("support.pods", role, *arguments, environment=environment, stderr="ours")


def read_ledger(path: Path) -> list[Any]:
    """Return the lines of a ledger; its last line may be incomplete, and is left out then."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _open_ledger(path: str) -> Callable[[Any], None]:
    """Return a function that adds a line to this ledger."""
    file = open(path, "w", buffering=1, encoding="ascii")  # noqa: SIM115 (until the process ends)
    return lambda line: print(json.dumps(line), file=file)


def _say(document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _stop_event() -> asyncio.Event:
    """Return an event that SIGTERM or the end of standard input sets."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(sys.stdin)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin, end)
    return stop


def _kill_self(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Recorder:
    """Summarize as the texts of the messages, after a pause, so that a kill often interrupts a summary."""

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        await asyncio.sleep(random.uniform(0, 0.05))
        return Draft(previous or " ".join(str(message.content) for message in messages), 0, 0, "recorder")


async def _until_acked(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry until Redis acknowledges it."""
    while True:
        try:
            return await attempt()
        except StoreUnavailable:
            continue


async def _begin_round(number: int, folder: Path, stop: asyncio.Event) -> None:
    """Add a byte to the producer's file of rounds, and wait while another producer is more than one round behind.

    A session remembers its last 16 appends. After Redis restarts, one producer may connect long before another retries
    its append; so no producer may get rounds ahead.
    """
    files = [folder / f"rounds-{producer}" for producer in range(PRODUCERS_COUNT)]
    with files[number].open("ab") as rounds:
        rounds.write(b".")

    def ahead_count() -> int:
        begun = [file.stat().st_size if file.exists() else 0 for file in files]
        return begun[number] - min(begun)

    while ahead_count() > 1 and not stop.is_set():  # noqa: ASYNC110 (other processes end it)
        await asyncio.sleep(0.005)


async def produce_for_swarm(url: str, namespace: str, number: str, path: str) -> None:
    """Append batches to shared sessions in random order, and to a session of its own, which it sometimes clears.

    A line of the ledger is [session id, seq, content] of one message; seq 0 marks a clear.
    """
    stop, note, rng = _stop_event(), _open_ledger(path), random.Random(int(number))
    texts_count = 0
    session_ids: list[str] = []
    async with Memory.connect(url, namespace=namespace, settings=SWARM) as memory:
        while not stop.is_set():
            if not session_ids:
                await _begin_round(int(number), Path(path).parent, stop)
                session_ids = rng.sample(SWARM_SESSIONS, len(SWARM_SESSIONS))
            is_own = rng.random() < 0.2
            session = memory.session(f"own-{number}" if is_own else session_ids.pop())
            contents = [f"p{number}-{texts_count + at}" for at in range(rng.randint(1, 4))]
            texts_count += len(contents)
            messages = [{"role": "user", "content": content} for content in contents]
            append = partial(session.append, *messages, id=f"p{number}-{texts_count}")
            receipt: Receipt = await _until_acked(append)
            await asyncio.sleep(0.003)  # bounds the number of messages that the test checks
            for at, content in enumerate(contents):
                note([session.id, receipt.first_seq + at, content])
            if is_own and rng.random() < 0.1:
                # Often while a worker has claimed the session: the next session has the same id.
                note([session.id, 0, "clearing"])
                await _until_acked(session.clear)
                note([session.id, 0, "cleared"])


async def work_for_swarm(url: str, namespace: str, path: str) -> None:
    """Run a worker. Adds the number of each outcome to its ledger every 50 ms, as a test may kill it at any time."""
    stop, note = _stop_event(), _open_ledger(path)
    async with Memory.connect(url, namespace=namespace, settings=SWARM) as memory:
        scheduler = Scheduler(memory.store, Recorder(), concurrency=4)
        await scheduler.start()
        assert scheduler.worker is not None
        while not stop.is_set():
            note(scheduler.worker.outcomes)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.05)
        await scheduler.stop()
        note(scheduler.worker.outcomes)


def own_sessions(number: int) -> list[str]:
    """Return the sessions that only this producer of a campaign writes to."""
    return [f"own-{number}-{at}" for at in range(16)]


async def produce_for_campaign(url: str, namespace: str, number: str, path: str) -> None:
    """Write to each session in a task of its own, so that a slow node delays only the sessions on it.

    A line of the ledger is [session id, text, start, end] of one append, in monotonic seconds.
    """
    stop, note = _stop_event(), _open_ledger(path)

    async def write(session_id: str, pace_s: float) -> None:
        session, count = memory.session(session_id), 0
        while not stop.is_set():
            text, begun_s, is_acked = f"{number}.{count}", time.monotonic(), False
            while not is_acked:
                try:
                    await session.append({"role": "user", "content": text}, id=text)
                    is_acked = True
                except (StoreUnavailable, Unconfirmed):
                    await asyncio.sleep(0.01)  # a refusal may come at once
            note([session_id, text, begun_s, time.monotonic()])
            count += 1
            await asyncio.sleep(pace_s)

    # Slower on shared sessions: a session remembers 16 appends, so few others may come before a retry.
    paces_s = dict.fromkeys(own_sessions(int(number)), 0.05) | dict.fromkeys(CAMPAIGN_SESSIONS, 0.25)
    async with Memory.connect(url, namespace=namespace, settings=CAMPAIGN) as memory:
        await asyncio.gather(*(write(session_id, pace_s) for session_id, pace_s in paces_s.items()))


class Counting:
    """Summarize as the number of messages; the originals keep the texts."""

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        return Draft(f"{len(messages)} messages", 0, 0, "counting")


async def work_for_campaign(url: str, namespace: str) -> None:
    """Run a worker."""
    stop = _stop_event()
    async with Memory.connect(url, namespace=namespace, settings=CAMPAIGN) as memory:
        scheduler = Scheduler(memory.store, Counting())
        await scheduler.start()
        await stop.wait()
        await scheduler.stop()


class _Chat:
    """Chats of one pod with the fallback. Notes when the breaker closed, and when a replay ended."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._random = random.Random(number)
        self._session_ids = CHAT_SESSIONS + [f"own-{number}-{at}" for at in range(3)]
        self._turns_count = 0
        self.slowest_ms = 0.0
        self.closed_s: list[float] = []
        self.replayed_s: list[float] = []

    def note(self, event: Event) -> None:
        if event.op == "breaker" and event.outcome == "closed":
            self.closed_s.append(time.monotonic())
        elif event.op == "replay":
            self.replayed_s.append(time.monotonic())

    async def take_turn(self, memory: Memory) -> list[Any]:
        """Append to some session, with an id half of the time. Returns the line of the ledger."""
        session = memory.session(self._random.choice(self._session_ids))
        text = f"{self._number}.{self._turns_count}"
        self._turns_count += 1
        message = {"role": "user", "content": text}
        given: Any = {"id": text} if self._random.random() < 0.5 else {}
        begun_s = time.monotonic()
        if self._random.random() < 0.1:
            merge = {f"said-{self._number}": self._turns_count}
            context = await session.append_and_read(message, merge=merge, **given)
            assert context.messages[-1].content == text or not context.degraded
            is_degraded = context.degraded
        else:
            is_degraded = (await session.append(message, **given)).degraded
        ended_s = time.monotonic()
        self.slowest_ms = max(self.slowest_ms, (ended_s - begun_s) * 1000)
        return [session.id, text, is_degraded, begun_s, ended_s]


async def chat(url: str, namespace: str, number: str, path: str) -> None:
    """Chat until stopped, and then until the backlog is replayed. Prints figures about the outages at the end.

    A line of the ledger is [session id, text, is degraded, start, end] of one turn.
    """
    stop, note, pod = _stop_event(), _open_ledger(path), _Chat(int(number))
    options: Any = {"namespace": namespace, "settings": CHATS, "fallback": True, "on_event": pod.note}
    async with Memory.connect(url, **options) as memory:
        while not stop.is_set():
            note(await pod.take_turn(memory))
            await asyncio.sleep(0.01)  # bounds the number of turns that the test checks
        async with asyncio.timeout(60):
            while memory.health().state != "closed" or memory.health().backlog_message_count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        health = memory.health()
    replay_s = pod.replayed_s[-1] - pod.closed_s[-1] if pod.replayed_s else 0.0
    counts = {"replayed": len(pod.replayed_s), "outages": len(pod.closed_s), "refused": health.refused_session_count}
    _say({"slowest_ms": pod.slowest_ms, "replay_s": replay_s} | counts)


async def extract(url: str, namespace: str, base_url: str, now_ms: str) -> None:
    """Extract what is queued in projects, at a fixed time. Prints "ready" at the start."""
    settings = Settings(deadline_s=60, reply_timeout_s=20, tick_s=0.01)
    model = open_model("openai", "some-model", "key", base_url=base_url, allow_http=True)
    workers = partial(Scheduler, extraction=model)
    stop = _stop_event()
    async with Memory.connect(url, namespace=namespace, settings=settings, clock=lambda: int(now_ms), workers=workers):
        _say("ready")
        await stop.wait()


async def train(url: str, namespace: str, when: str) -> None:
    """Train a dictionary, and kill this process `before` or `after` the dictionary is stored."""
    samples.MIN_SAMPLE_BYTES, samples.MIN_SESSIONS = 10_000, 5
    settings = Settings(shards=2, max_summary_bytes=1024 * 1024)
    async with Memory.connect(url, namespace=namespace, settings=settings) as memory:
        worker = Worker(memory.store, Echo())
        if when == "before":
            dictionaries.train_if_better = _kill_self  # type: ignore[assignment]
        run = memory.store.run

        async def run_and_die(call: Any, **options: Any) -> Any:
            value = await run(call, **options)
            if call.commands[0][0] == "HSETNX":
                _kill_self()
            return value

        memory.store.run = run_and_die  # type: ignore[method-assign]
        await worker.drain()


def import_again_and_again(url: str, namespace: str, folder: str) -> None:
    """Import `folder`/after over `folder`/before, into project p0, p1 and so on, each in a child process.

    The child of p<n> kills itself after n writes of the import. Prints the number of children once one succeeded.
    """
    imports.PIECE_COUNT = 60  # small, so that an import has several pieces
    for number in range(400):
        child = os.fork()
        if child == 0:
            _import(url, namespace, [Path(folder, "before"), Path(folder, "after")], number)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            _say(number + 1)
            return
    raise AssertionError("each import was killed")


def _import(url: str, namespace: str, folders: Sequence[Path], number: int) -> None:
    before, after = ({name: (folder / name).read_text() for name in Project.FILES} for folder in folders)
    with blocking.Memory.connect(url, namespace=namespace, settings=PATIENT) as memory:
        project = memory.project(f"p{number}")
        project.import_files(before)
        run, left = memory.store.run, [number]

        async def run_or_die(call: Any, **options: Any) -> Any:
            left[0] -= call.op == "project_change"
            if left[0] < 0:
                _kill_self()
            return await run(call, **options)

        memory.store.run = run_or_die  # type: ignore[method-assign]
        project.import_files(after, replace=True)


def race(url: str) -> None:
    """Carry out an order per line of standard input. Prints "ready", and then a line per order.

    An order is [namespace, store, method, arguments, named arguments]; the answer ["ok", id], or [error class, null].
    """
    with contextlib.ExitStack() as stack:
        projects: dict[str, Any] = {}
        _say("ready")
        for line in sys.stdin:
            namespace, store, method, arguments, named = json.loads(line)
            if namespace not in projects:
                memory = blocking.Memory.connect(url, namespace=namespace, settings=PATIENT)
                projects[namespace] = stack.enter_context(memory).project("apollo")
            apollo = projects[namespace]
            try:
                target = apollo if store == "project" else getattr(apollo, store)
                item = getattr(target, method)(*arguments, **named)
                _say(["ok", getattr(item, "id", None)])
            except RedismemError as error:
                _say([type(error).__name__, None])


ROLES: dict[str, Callable[..., Any]] = {
    "swarm-producer": produce_for_swarm,
    "swarm-worker": work_for_swarm,
    "campaign-producer": produce_for_campaign,
    "campaign-worker": work_for_campaign,
    "chat": chat,
    "extract": extract,
    "train": train,
    "import": import_again_and_again,
    "race": race,
}

if __name__ == "__main__":
    running = ROLES[sys.argv[1]](*sys.argv[2:])
    if inspect.iscoroutine(running):
        asyncio.run(running)

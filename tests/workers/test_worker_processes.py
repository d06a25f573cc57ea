"""Real processes: workers are killed or stopped at any moment, Redis once; acknowledged messages exist once."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checks import until
from support.commands import wait_for_exit
from support.forks import Fork
from support.pods import PRODUCERS_COUNT, SWARM, Recorder, read_ledger, start_pod
from support.redis_server import RedisServer
from support.selection import EVERYTHING
from support.waiting import START_S, wait_until
from support.writers import Echo

from redismem import Memory
from redismem.context.context import Context
from redismem.protocol.queue.depths import members
from redismem.workers.summaries import Worker

WORKERS, ROUNDS = (4, 30) if EVERYTHING else (3, 6)
NAMESPACE = "swarm"
pytestmark = pytest.mark.timeout(600)


class Swarm:
    """The processes, and what was done to them."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._ledgers = [folder / f"producer-{number}" for number in range(PRODUCERS_COUNT)]
        self._started: list[Fork] = []
        self.producers = [self._start("swarm-producer", number, path) for number, path in enumerate(self._ledgers)]
        self._worker_ledgers: dict[int, Path] = {}
        self.workers = [self._start_worker() for _ in range(WORKERS)]
        self.stopped: list[tuple[int, Fork]] = []
        self.done: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()

    def _start(self, role: str, *rest: object) -> Fork:
        self._started.append(start_pod(role, self._url, NAMESPACE, *rest))
        return self._started[-1]

    def _start_worker(self) -> Fork:
        path = self._folder / f"worker-{len(self._worker_ledgers)}"
        worker = self._start("swarm-worker", path)
        self._worker_ledgers[worker.pid] = path
        return worker

    def read_messages(self) -> list[list[tuple[str, int, str]]]:
        """Read each producer's log; its last line may be incomplete."""
        return [list(map(tuple, read_ledger(path))) for path in self._ledgers]

    def wait_for_more(self, count: int, deadline_s: float = START_S) -> None:
        """Wait until this many more messages are acknowledged, which paces the test."""

        def lines_count() -> int:
            return sum(path.read_bytes().count(b"\n") for path in self._ledgers if path.exists())

        wanted = lines_count() + count
        wait_until(lambda: lines_count() >= wanted, "more is acknowledged", deadline_s)

    def until_ready(self, at: int) -> None:
        """Wait for a worker to start: before that it has no work, and killing it tests nothing."""
        path = self._worker_ledgers[self.workers[at].pid]
        wait_until(lambda: path.exists() and b"\n" in path.read_bytes(), "it is ready", START_S)

    def kill(self, at: int) -> None:
        self.workers[at].kill()
        self._count(self.workers[at])
        self.workers[at] = self._start_worker()
        self.done["kill -9 of a worker"] += 1

    def _count(self, worker: Fork) -> None:
        """Wait for the end of a worker, and add up the outcomes of its last line."""
        wait_for_exit(worker)
        lines = read_ledger(self._worker_ledgers[worker.pid])
        self.outcomes.update(lines[-1] if lines else {})

    def stop(self, at: int, until_round: int) -> None:
        os.kill(self.workers[at].pid, signal.SIGSTOP)
        self.stopped.append((until_round, self.workers[at]))
        self.done["SIGSTOP of a worker"] += 1

    def resume(self, round_number: float) -> None:
        for until_round, worker in self.stopped:
            if until_round <= round_number and worker.poll() is None:
                os.kill(worker.pid, signal.SIGCONT)
        self.stopped = [entry for entry in self.stopped if entry[0] > round_number]

    def finish(self) -> None:
        """Stop all processes gracefully."""
        self.resume(float("inf"))
        for process in [*self.producers, *self.workers]:
            process.terminate()
        for producer in self.producers:
            assert producer.wait(START_S) == 0
        for worker in self.workers:
            self._count(worker)

    def close(self) -> None:
        for process in self._started:
            with process:
                process.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Every write is in the file before it is acknowledged, and waits for no disk."""
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


@pytest.fixture
def running(server: RedisServer, tmp_path: Path) -> Iterator[Swarm]:
    running = Swarm(server.url, tmp_path)
    yield running
    running.close()


def torment(running: Swarm, server: RedisServer) -> None:
    rng = random.Random(3)
    for at in range(WORKERS):
        running.until_ready(at)
    for number in range(ROUNDS):
        running.wait_for_more(100)
        running.resume(number)
        at = rng.randrange(WORKERS)
        running.until_ready(at)
        if number == ROUNDS // 2:
            server.kill()
            server.start()
            running.done["kill -9 of Redis"] += 1
        elif number % 2:
            running.stop(at, number + (6 if EVERYTHING else 3))
        else:
            running.kill(at)
    running.wait_for_more(100)


def expected_of(ledger: list[tuple[str, int, str]]) -> dict[str, dict[int, str]]:
    """Return session, seq and content of one producer's acknowledged messages since its last clear."""
    found: dict[str, dict[int, str]] = {}
    for session_id, seq, content in ledger:
        if seq == 0:
            found[session_id] = {}
        else:
            assert seq not in found.setdefault(session_id, {})
            found[session_id][seq] = content
    return found


def check_whole(context: Context, expected: dict[int, str]) -> None:
    """Check that each message is in its place once: in the summary of its range, or in the window."""
    next_seq = 1
    for summary in context.summaries:
        assert summary.first_seq == next_seq, "ranges follow each other"
        next_seq = summary.last_seq + 1
        said = summary.text.split()
        assert said == [expected[seq] for seq in range(summary.first_seq, next_seq)]
    assert [message.seq for message in context.messages] == list(range(next_seq, context.last_seq + 1))
    assert [message.content for message in context.messages] == [
        expected[seq] for seq in range(next_seq, context.last_seq + 1)
    ]
    assert len(expected) == context.last_seq


def expected_of_all(ledgers: list[list[tuple[str, int, str]]]) -> dict[str, dict[int, str]]:
    """Check the messages of all producers, which may share sessions."""
    expected: dict[str, dict[int, str]] = {}
    for ledger in ledgers:
        for session_id, told in expected_of(ledger).items():
            assert not expected.get(session_id, {}).keys() & told.keys(), "no place was given twice"
            expected.setdefault(session_id, {}).update(told)
    return expected


async def check_no_lease_is_left(memory: Memory) -> None:
    """A lease of a session's namesake would hide the session from the workers."""
    for number in range(PRODUCERS_COUNT):
        session = memory.session(f"own-{number}")
        await session.append(*({"role": "user", "content": f"last-{at}"} for at in range(11)))
        echo = Echo()
        assert await Worker(memory.store, echo).attend(session.id) == "ok"
        assert echo.seen


async def test_workers_die_and_nothing_is_lost(
    running: Swarm, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    torment(running, server)
    running.finish()
    ledgers = running.read_messages()
    expected = expected_of_all(ledgers)
    summaries_count = 0
    async with Memory.connect(server.url, namespace=NAMESPACE, settings=SWARM) as memory:
        worker = Worker(memory.store, Recorder())

        async def settled() -> bool:
            await worker.drain()
            queued = [
                await memory.store.run(members(memory.store.keys.shards(), name, 100)) for name in ("overdue", "leased")
            ]
            return queued == [[], []]

        await until(settled)
        assert await memory.store.run(members(memory.store.keys.shards(), "dead", 100)) == []
        for session_id, told in expected.items():
            context = await memory.session(session_id).read()
            check_whole(context, told)
            assert len(context.messages) <= memory.settings.threshold, "no session was forgotten"
            summaries_count += len(context.summaries)
        await check_no_lease_is_left(memory)
    commits = [told for ledger in ledgers for _, seq, told in ledger if seq == 0]
    assert running.done.total() == ROUNDS
    assert running.outcomes["ok"] > 0, "the workers worked meanwhile"
    with capsys.disabled():
        counts = {**running.done, "clear": commits.count("cleared"), **running.outcomes}
        sys.stdout.write(
            f"\n{sum(map(len, expected.values()))} acknowledged messages in {len(expected)} sessions and "
            f"{summaries_count} summaries; {', '.join(f'{name}: {count}' for name, count in counts.items())}\n"
        )

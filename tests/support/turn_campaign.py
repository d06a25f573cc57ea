"""A campaign against turns: writers and listeners die, pause and lose their connections, and Redis is killed.

`python -m support.turn_campaign SECONDS [SEED]` prints what it has shown. Run by `make turns`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from redismem import Memory, TurnBusy
from redismem.protocol import scripts
from support.checks import until
from support.proxy import How, Proxy
from support.redis_server import RedisServer
from support.turn_judge import Verdict
from support.turn_processes import FAULT, LEASE_S, NAMESPACE, SESSIONS, SETTINGS, read_lines
from support.waiting import PACE, START_S

_TESTS = Path(__file__).parents[1]
_COUNT = 2
_REPLIES: tuple[How, ...] = ("reset", "close", "half_close", "truncate", "freeze", "hole", "late")
END_S = 1.5 * LEASE_S + 2
"""The time in which the turn of a process that has died must end."""


class Pod:
    """A writer or a listener, which starts again after each kill."""

    def __init__(self, role: str, number: int, url: str, folder: Path, fault: str) -> None:
        self.role, self.number, self.life = role, number, -1
        self._url, self._folder, self._fault = url, folder, fault
        self.start()

    def start(self) -> None:
        self.life += 1
        given = (self.role, self._url, str(self._folder), str(self.number), str(self.life))
        path = os.pathsep.join([str(_TESTS), str(_TESTS.parent)])
        environ = os.environ | {"PYTHONPATH": path, FAULT: self._fault}
        command = [sys.executable, "-m", "support.turn_processes", *given]
        self.process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE)

    @property
    def ledger(self) -> Path:
        return self._folder / f"{self.role}-{self.number}.{self.life}"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def open_turns(self) -> dict[str, str]:
        """Return the turns that it has begun and not ended: their sessions by generation."""
        found: dict[str, str] = {}
        for _, line in read_lines(self.ledger):
            if line["kind"] == "begun":
                found[line["generation"]] = line["session"]
            elif line["kind"] == "ended":
                found.pop(line["generation"], None)
        return found


class Campaign:
    """Redis, the pods, the proxies between them, and the faults so far."""

    def __init__(self, folder: Path, seed: int, fault: str) -> None:
        self.folder, self.fault = folder, fault
        self.random = random.Random(seed)
        self.server = RedisServer(folder / "redis", aof=True, options=("--appendfsync", "always"))
        self.faults: Counter[str] = Counter()
        self.ended_s = 0.0
        """The longest time until the turns of a killed writer had ended."""
        self.late: list[str] = []
        self.pods: list[Pod] = []
        self._alone = asyncio.Lock()
        """Held while no reply may be lost."""

    async def run(self, seconds: float) -> Verdict:
        """Inject faults for so long, let everything end, and judge."""
        self.server.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._end)
            self.proxies = [await stack.enter_async_context(Proxy(self.server.port)) for _ in range(2 * _COUNT)]
            self.memory = await stack.enter_async_context(
                Memory.connect(self.server.url, namespace=NAMESPACE, settings=SETTINGS)
            )
            for place, proxy in enumerate(self.proxies):
                role = ("writer", "listener")[place % 2]
                self.pods.append(Pod(role, place // 2, proxy.url, self.folder, self.fault))
            await until(self._have_begun, START_S)
            losing = asyncio.create_task(self._lose_replies())
            stack.callback(losing.cancel)
            kinds: list[Callable[[], Awaitable[None]]] = [
                self._kill_writer,
                self._kill_listener,
                self._pause_writer,
                self._cut,
                self._kill_redis,
            ]
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                self.random.shuffle(kinds)
                for inject in kinds:
                    if time.monotonic() < ends_s:
                        await inject()
                        await asyncio.sleep(self.random.uniform(0, 0.3))
            await self._alone.acquire()
            return await self._finish()

    def _have_begun(self) -> bool:
        return all(pod.ledger.exists() and pod.ledger.stat().st_size for pod in self.pods)

    async def _finish(self) -> Verdict:
        for role in ("writer", "listener"):
            pods = [pod for pod in self.pods if pod.role == role]
            for pod in pods:
                await until(pod.ledger.exists, START_S)  # it may just have been started
                await asyncio.to_thread(pod.process.communicate, timeout=60 * PACE)
                assert pod.process.returncode == 0, f"{pod.role} {pod.number}"
            if role == "writer":
                await asyncio.gather(*map(self._take_last_turn, SESSIONS))
        verdict = Verdict(self.folder)
        verdict.check_copies(self.faults["Redis killed"])
        await verdict.check_store(self.memory)
        for text in [*self.late, *await self._places_left()]:
            verdict.blame("late", text)
        return verdict

    async def _take_last_turn(self, session_id: str) -> None:
        """Take a turn: it ends one that nobody knows but Redis, as its writer died before it had noted it."""
        question = {"role": "user", "content": f"{session_id}-last"}
        async with asyncio.timeout(30 * PACE):
            while True:
                # All places of the line may be taken, until they lapse.
                with contextlib.suppress(TurnBusy):
                    session = self.memory.session(session_id)
                    async with session.turn(question, id=f"{session_id}-last", when_busy="wait"):
                        return
                await asyncio.sleep(0.2)

    async def _places_left(self) -> list[str]:
        """Return the sessions with a place in their line that has not lapsed, though nobody waits any more."""
        keys = [self.memory.store.keys.session(session_id).waiters for session_id in SESSIONS]

        def held() -> list[bytes]:
            now_s = int(self.server.say("TIME")[0])
            lines = {key: self.server.say("GET", key) or b"" for key in keys}
            return [key for key, line in lines.items() for seen in line.split(b",") if int(seen[9:-3] or 0) > now_s - 6]

        with contextlib.suppress(TimeoutError):
            await until(lambda: not held(), 10 * PACE)
        return [f"places in {key!r}" for key in held()]

    def _end(self) -> None:
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.kill()
        self.server.stop()

    def _pick(self, role: str) -> tuple[Pod, Proxy]:
        place = self.random.choice([place for place, pod in enumerate(self.pods) if pod.role == role])
        return self.pods[place], self.proxies[place]

    async def _kill_writer(self) -> None:
        """Kill a writer, and wait until its turns have ended. Meanwhile nothing else happens to the others."""
        async with self._alone:
            await self._kill_writer_alone()

    async def _kill_writer_alone(self) -> None:
        pod, _ = self._pick("writer")
        with contextlib.suppress(TimeoutError):
            await until(lambda: pod.ledger.exists() and pod.open_turns(), START_S)
        pod.kill()
        self.faults["writers killed"] += 1
        left, killed_s = pod.open_turns(), time.monotonic()
        pod.start()
        with contextlib.suppress(TimeoutError):
            await until(lambda: self._have_ended(left), END_S * 3 * PACE)
        took_s = time.monotonic() - killed_s
        self.ended_s = max(self.ended_s, took_s)
        if took_s > LEASE_S * 1.5 + 2 * PACE:
            self.late.append(f"{len(left)} turns of a killed writer run after {took_s:.1f} s")

    async def _have_ended(self, turns: dict[str, str]) -> bool:
        for generation, session_id in turns.items():
            field = self.server.say("HGET", self.memory.store.keys.session(session_id).state, "turn")
            if field is not None and field.startswith(b"r %b " % generation.encode()):
                return False
        return True

    async def _kill_listener(self) -> None:
        pod, _ = self._pick("listener")
        pod.kill()
        self.faults["listeners killed"] += 1
        pod.start()
        await until(pod.ledger.exists, START_S)

    async def _pause_writer(self) -> None:
        """Pause a writer for longer than its lease, and let it go on while another process ends its turns."""
        pod, _ = self._pick("writer")
        pod.process.send_signal(signal.SIGSTOP)
        self.faults["pauses over a lease"] += 1
        await asyncio.sleep(self.random.uniform(1.5, 2.5) * LEASE_S)
        async with self._alone:  # the others end its turns a moment later, once it goes on
            others = [proxy for place, proxy in enumerate(self.proxies) if self.pods[place] is not pod]
            for proxy in others:
                proxy.break_next("hold", float("inf"), scripts.load("append_turn").sha)
            await asyncio.sleep(self.random.uniform(0, 0.5) * LEASE_S)
            pod.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.2)
            for proxy in others:
                proxy.heal()

    async def _cut(self) -> None:
        """Cut all connections of a process, which finds nobody for a while."""
        proxy = self.random.choice(self.proxies)
        await proxy.refuse()
        self.faults["connections cut"] += 1
        await asyncio.sleep(self.random.uniform(0, 0.5))
        await proxy.accept_again()

    async def _lose_replies(self) -> None:
        """Lose replies of some calls, in some way; what is late arrives when it has been sent again."""
        while True:
            async with self._alone:
                proxy = self.random.choice(self.proxies)
                proxy.forget()
                proxy.break_next(self.random.choice(_REPLIES), 1, b"EVALSHA")
                with contextlib.suppress(TimeoutError):
                    await until(partial(getattr, proxy, "broken_count"), 0.5)
                self.faults["replies lost"] += proxy.broken_count
                proxy.heal()
                await asyncio.sleep(self.random.uniform(0, 0.2))
                await proxy.deliver()
            await asyncio.sleep(self.random.uniform(0, 0.2))

    async def _kill_redis(self) -> None:
        self.server.kill()
        self.faults["Redis killed"] += 1
        await asyncio.sleep(self.random.uniform(0, 0.3))
        await asyncio.to_thread(self.server.start)


async def play(seconds: float, seed: int | None = None, fault: str = "") -> tuple[Verdict, str]:
    """Run a campaign, and return the verdict and a report."""
    seed = random.randrange(1_000_000) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), seed, fault)
        verdict = await campaign.run(seconds)
    counts = verdict.counts
    words = [f"{len(verdict.begun)} turns, {counts['deliveries']} deliveries, {counts['appends']} appends"]
    words += [f"{counts[f'ended {name}']} {name}" for name in ("done", "stopped", "failed", "lost")]
    words.append(f"{counts['resets']} resets")
    words += [f"{count} {name}" for name, count in sorted(campaign.faults.items())]
    words += [f"{counts[name]} times {name}" for name in ("TurnBusy", "TurnKnown", "StoreUnavailable", "TurnLost")]
    words.append(f"turns of a killed writer ended within {campaign.ended_s:.1f} s")
    words += [f"{counts[name]} {name}" for name in ("deltas lost", "deltas doubled", "deltas out of order")]
    words.append(f"{len(verdict.violations)} violations")
    return verdict, f"seed {seed}: " + ", ".join(words)


async def main(seconds: float, seed: int | None) -> int:
    """Play a campaign, and print what it has shown."""
    verdict, report = await play(seconds, seed, os.environ.get(FAULT, ""))
    sys.stdout.write("\n".join([report, *verdict.violations[:50]]) + "\n")
    return len(verdict.violations)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(bool(asyncio.run(main(float(given[0]), int(given[1]) if given[1:] else None))))

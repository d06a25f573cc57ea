"""Offer a process twice the turns that it can make, and see what becomes of them.

A turn is an `append_and_read` and an `append` of 160 bytes. First, 64 callers make turns as fast as the process can:
that is its capacity. In the same process, each of these turns is begun by the generator as it begins the offered ones,
and one more is begun that makes no call: the generator's own cost is not redismem's. Then twice as many turns become
due at random moments. A turn is good if it is answered within a second after it was due. Then half the capacity is
offered, which tells when all is well again. At the end every session is read: each append that was acknowledged must be
there once, and none that was refused.

The sides: the library in a process, the same with the fallback, and `redismem serve` with the load in another process.
Where others share the cores, the good turns per second of the side's own CPU time tell more than those per second.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import resource
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic, process_time
from typing import Any

from benchmarks.http import serving
from benchmarks.measuring import Server, own_server, surroundings, table
from benchmarks.running import load, options, over_lane, run, show_results, verdict
from redismem import Memory, Overloaded, Settings, StoreUnavailable

CALLERS, SESSION_TURNS, SESSIONS_COUNT, CONNECTIONS_COUNT = 64, 8, 1_024, 8_000
FACTOR, GOOD_S, SAMPLE_S = 2.0, 1.0, 0.25
LEAST_GOOD, MOST_P99_MS = 0.8, 1_000.0
NAMESPACE = "bench-overload"
SIDES = ("library", "fallback", "serve")
TEXT = " I ordered a lamp on Monday, and it has not come. Where is it, and when will it be here?"

Append = Callable[[str, str, str], Awaitable[None]]
"""Appends a text to a session, as a question or an answer. Raises Overloaded, or StoreUnavailable."""
Turn = Callable[..., Coroutine[Any, Any, None]]


@dataclass
class Turns:
    """Turns on many sessions, each replaced after eight turns, and what was said about each of their appends."""

    append: Append
    counts: Counter[int] = field(default_factory=Counter)
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)
    """The outcome of each append by its text, for each session: acknowledged, refused or unknown."""
    number: int = 0

    async def turn(self, *, is_made: bool = True) -> None:
        """Make a turn, or only begin one as the generator does."""
        self.number += 1
        number, place = self.number, self.number % SESSIONS_COUNT
        session = f"s-{place}-{self.counts[place] // SESSION_TURNS}"
        self.counts[place] += is_made
        outcomes = self.outcomes.setdefault(session, {})
        for role in ("user", "assistant"):
            text = f"{number:08} {role}{TEXT}".ljust(160, ".")
            outcomes[text] = "unknown"
            if not is_made:
                return
            try:
                await self.append(session, role, text)
            except Overloaded:
                outcomes[text] = "refused"
                raise
            outcomes[text] = "acknowledged"

    async def check(self, memory: Memory) -> dict[str, int]:
        """Return how many appends were lost, doubled, or made although they were refused."""
        found: Counter[str] = Counter(lost=0, doubled=0, refused_but_made=0)
        sessions = list(self.outcomes)
        for at in range(0, len(sessions), CALLERS):
            part = sessions[at : at + CALLERS]
            for session, context in zip(
                part, await asyncio.gather(*(memory.session(name).read() for name in part)), strict=True
            ):
                made = Counter(message.content for message in context.messages)
                for text, outcome in self.outcomes[session].items():
                    found["lost"] += outcome == "acknowledged" and not made[text]
                    found["doubled"] += made[text] > 1
                    found["refused_but_made"] += outcome == "refused" and made[text] > 0
        return dict(found)


@dataclass
class Offered:
    """The turns of one open loop."""

    seconds: float
    waits_s: list[float] = field(default_factory=list)
    """From the moment at which a turn was due to its answer."""
    refusals_s: list[float] = field(default_factory=list)
    """From the begin of a call to its refusal."""
    failed: Counter[str] = field(default_factory=Counter)
    drain_s: float = 0.0
    """From the end of the load to the last answer."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def begin(self, turn: Coroutine[Any, Any, None], due_s: float) -> asyncio.Task[None]:
        self.tasks.add(task := asyncio.get_running_loop().create_task(self._make(turn, due_s)))
        task.add_done_callback(self.tasks.discard)
        return task

    async def _make(self, turn: Coroutine[Any, Any, None], due_s: float) -> None:
        begun_s = monotonic()
        try:
            await turn
            self.waits_s.append(monotonic() - due_s)
        except Overloaded:
            self.refusals_s.append(monotonic() - begun_s)
        except StoreUnavailable as error:
            self.failed[error.reason] += 1

    def good_per_s(self) -> float:
        return sum(wait_s <= GOOD_S for wait_s in self.waits_s) / self.seconds


def percentile_ms(seconds: list[float], part: float) -> float:
    return sorted(seconds)[int(part * (len(seconds) - 1))] * 1000 if seconds else 0.0


async def capacity(turn: Turn, seconds: float, *, beside: bool) -> float:
    """Return the turns per second of a closed loop. `beside` begins one more with each, which makes no call."""
    offered, begun_s = Offered(seconds), monotonic()

    async def call() -> None:
        while monotonic() < begun_s + seconds:
            if beside:
                offered.begin(turn(is_made=False), monotonic())
            await offered.begin(turn(), monotonic())

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return (len(offered.waits_s) / (1 + beside)) / (monotonic() - begun_s)


async def offer(turn: Turn, per_s: float, seconds: float) -> Offered:
    """Begin turns at random moments, and wait for all."""
    offered = Offered(seconds)
    begun_s = due_s = monotonic()
    while (due_s := due_s + random.expovariate(per_s)) < begun_s + seconds:
        if (wait_s := due_s - monotonic()) > 0:
            await asyncio.sleep(wait_s)
        offered.begin(turn(), due_s)
    ended_s = monotonic()
    if offered.tasks:
        await asyncio.wait(offered.tasks)
    offered.drain_s = monotonic() - ended_s
    return offered


class Connection(asyncio.Protocol):
    """An HTTP connection that carries one request at a time."""

    is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._buffer = b""
        self._answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_open = False
        if not self._answer.done():
            self._answer.set_exception(StoreUnavailable("closed without an answer", reason="ConnectionLost"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if separator and len(rest) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            self._buffer = b""
            if not self._answer.done():  # the sample was cancelled
                self._answer.set_result(int(head[9:12]))

    async def ask(self, method: str, path: str, body: str) -> int:
        """Return the status of the answer. Raises StoreUnavailable."""
        self._answer = asyncio.get_running_loop().create_future()
        request = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        self._transport.write(request.encode())
        return await self._answer


class Client:
    """A client of the server, over connections that are open from the start. A request waits for an idle one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: deque[Connection] = deque()  # taken in turn, since the server closes those that are idle for long
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self.longest_s: dict[str, float] = {}
        """The longest time of a request that is never refused, by what it does."""

    async def open(self) -> None:
        _, files_count = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files_count, files_count))
        for _ in range(CONNECTIONS_COUNT):
            self._idle.append(await self._open())

    async def _open(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._port)
        return connection

    async def ask(self, method: str, path: str, body: str = "") -> int:
        if self._idle:
            connection = self._idle.popleft()
        else:
            self._waiting.append(waiting := asyncio.get_running_loop().create_future())
            connection = await waiting
        if not connection.is_open:
            connection = await self._open()
        try:
            return await connection.ask(method, path, body)
        finally:
            if self._waiting:
                self._waiting.popleft().set_result(connection)
            else:
                self._idle.append(connection)

    async def append(self, session: str, role: str, text: str) -> None:
        path = f"/v1/sessions/{session}/messages" + ("?read=true" if role == "user" else "")
        status = await self.ask("POST", path, f'{{"role": "{role}", "content": "{text}"}}')
        if status == 503:
            raise Overloaded("503")
        if status != 201:
            raise StoreUnavailable(f"{status}", reason=str(status))

    async def sample(self) -> None:
        """Time what is never refused, on a new connection as a probe, until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            for what, method, path in (("livez", "GET", "/livez"), ("clear", "DELETE", "/v1/sessions/cleared")):
                begun_s = monotonic()
                connection = await self._open()
                assert await connection.ask(method, path, "") != 503, what
                self.longest_s[what] = max(self.longest_s.get(what, 0), monotonic() - begun_s)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, user and system."""
    if pid == os.getpid():
        return process_time()
    with open(f"/proc/{pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def measure(url: str, port: int, pid: int, fallback: bool, seconds: float) -> dict[str, Any]:
    """Return the figures of one side: of the server at this port, or of this process if it is 0."""
    client, settings = Client(port), Settings(fallback=fallback, strategy="none")
    async with over_lane(url, NAMESPACE, settings) as memory:

        async def append(session: str, role: str, text: str) -> None:
            message, handle = {"role": role, "content": text}, memory.session(session)
            await (handle.append_and_read(message) if role == "user" else handle.append(message))

        turns = Turns(client.append if port else append)
        if port:
            await client.open()
        await capacity(turns.turn, min(0.5, seconds), beside=False)
        begun_s, begun_cpu_s = monotonic(), cpu_s(pid)
        most = await capacity(turns.turn, min(3.0, seconds), beside=not port)
        most_per_cpu_s = most * (monotonic() - begun_s) / (cpu_s(pid) - begun_cpu_s)
        begun_cpu_s = cpu_s(pid)
        sampling = asyncio.create_task(client.sample()) if port else None
        over = await offer(turns.turn, FACTOR * most, seconds)
        good_per_cpu_s = over.good_per_s() * seconds / (cpu_s(pid) - begun_cpu_s)
        if sampling is not None:
            sampling.cancel()
        await offer(turns.turn, most / 2, min(1.0, seconds))
        then = await offer(turns.turn, most / 2, min(2.0, seconds))
        return {
            "per_s": most,
            "good": over.good_per_s() / most,
            "good_cpu": good_per_cpu_s / most_per_cpu_s,
            "p50_ms": percentile_ms(over.waits_s, 0.5),
            "p99_ms": percentile_ms(over.waits_s, 0.99),
            "refused": len(over.refusals_s),
            "refusal_p50_ms": percentile_ms(over.refusals_s, 0.5),
            "refusal_p99_ms": percentile_ms(over.refusals_s, 0.99),
            "failed": dict(over.failed),
            "drain_s": over.drain_s,
            "p99_after_ms": percentile_ms(then.waits_s, 0.99),
            "refused_after": len(then.refusals_s),
            "longest_ms": {what: longest_s * 1000 for what, longest_s in client.longest_s.items()},
            "state": memory.health().state,
            **await turns.check(memory),
        }


def measure_side(server: Server, side: str, seconds: float) -> dict[str, Any]:
    """Return the figures of one side, from a process of its own."""
    print(f"{side}: {seconds:g} s at {FACTOR:g} x its capacity", file=sys.stderr, flush=True)
    server.client.flushall()
    words = [sys.executable, "-m", "benchmarks.overload", "--client", server.url, side, str(seconds)]
    if side != "serve":
        return json.loads(subprocess.run([*words, "0", "0"], stdout=subprocess.PIPE, check=True).stdout)
    serve = ("redismem", "serve", "--port", "0", "--namespace", NAMESPACE, "--url", server.url)
    with serving(side, *serve, REDISMEM_STRATEGY="none") as service:
        done = subprocess.run([*words, str(service.port), str(service.pid)], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)


def report(sides: dict[str, dict[str, Any]]) -> str:
    names = ("good", "good_cpu", "p50_ms", "p99_ms", "refusal_p50_ms", "refusal_p99_ms", "drain_s", "p99_after_ms")
    heads = ("good", "by CPU", "p50", "p99", "refusal p50", "p99, ms", "drained, s", "p99 after")
    rows = [
        [f"{side}, {FACTOR:g} x {found['per_s']:,.0f} turns/s", *(f"{found[name]:,.2f}" for name in names)]
        for side, found in sides.items()
    ]
    lines = [table(("overload", *heads), rows), ""]
    for side, found in sides.items():
        lines += [
            verdict(f"{side}, good turns to capacity", found["good"], LEAST_GOOD, at_most=False),
            verdict(f"{side}, the same per second of its CPU", found["good_cpu"], LEAST_GOOD, at_most=False),
            verdict(f"{side}, p99 of the answered", found["p99_ms"], MOST_P99_MS, at_most=True, unit="ms"),
            f"{side}: {found['lost']} lost, {found['doubled']} doubled, {found['refused_but_made']} refused but made; "
            f"{found['refused']:,} refused, {sum(found['failed'].values()):,} failed, {found['refused_after']} refused "
            f"after; Redis: {found['state']}",
        ]
        if longest := ", ".join(f"{what} {ms:,.0f} ms" for what, ms in found["longest_ms"].items()):
            lines.append(f"{side}, longest of what is never refused: {longest}")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)  # as `redismem serve`: by default, collections take half of an arrival's time
        url, side, seconds, port, pid = sys.argv[2:]
        figures = measure(url, int(port), int(pid) or os.getpid(), side == "fallback", float(seconds))
        print(json.dumps(run(figures)))
        return
    parser = options("benchmarks.overload", __doc__ or "", rounds=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the overload of each side (10)")
    parser.add_argument("--side", choices=SIDES, help="only this one")
    asked = parser.parse_args()
    with own_server() as server:
        around = surroundings(server, "benchmarks.overload") | {"load": load()}
        sides = {
            side: measure_side(server, side, 1.0 if asked.quick else asked.seconds)
            for side in SIDES
            if asked.side in (None, side)
        }
    show_results(around, {"sides": sides}, report(sides), asked.json)


if __name__ == "__main__":
    main()

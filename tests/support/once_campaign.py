"""Eight writers of the same sessions and records, while connections die and deliver late, or Redis is killed.

`python -m support.once_campaign SECONDS` plays each kind of fault for so long, and prints how many writes were lost or
doubled. Run by `make once`.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from redismem import Memory, RecordConflict, Settings
from redismem.record import Change
from support.checks import until
from support.proxy import Proxy
from support.redis_server import RedisServer

WRITERS_COUNT = 8
SETTINGS = Settings(strategy="none", deadline_s=30, reply_timeout_s=10, max_window_count=100_000)
NAMESPACE = "once"
SESSION_COUNT = 1_000
"""The appends of a writer before it goes on to the next session."""


async def write(url: str, number: int) -> None:
    """Append, increment a shared number and set an own one, until standard input ends. Print what was acknowledged."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin, stop.set)
    acked: list[tuple[str, str]] = []
    increments = own = 0
    async with Memory.connect(url, namespace=NAMESPACE, settings=SETTINGS) as memory:
        record = memory.record("shared")
        while not stop.is_set():
            session, text = f"s{own // SESSION_COUNT}", f"{number}.{own}"
            await memory.session(session).append({"role": "user", "content": text})
            acked.append((session, text))
            increments += await _increment(record)
            own += 1
            await record.write(Change(sets={b"own%d" % number: b"%d" % own}))
    sys.stdout.write(json.dumps({"acked": acked, "increments": increments, "own": own}))


async def _increment(record: Any) -> int:
    """Add one to the shared number, if no other writer is faster. Return the number of acknowledged increments."""
    (value,) = await record.get(b"n")
    more = {b"n": b"%d" % (int(value or 0) + 1)}
    try:
        await record.write(
            Change(absent=[b"n"], sets=more) if value is None else Change(equals={b"n": value}, sets=more)
        )
    except RecordConflict:
        return 0
    return 1


async def deliver_late(server: RedisServer, proxy: Proxy) -> None:
    """Reset connections with their last bytes, and deliver these after up to 300 more calls."""
    proxy.break_next("late", 1, b"EVALSHA")
    due_count = len(proxy.sent) + random.choice((30, 100, 300))
    await until(lambda: bool(proxy.late) and len(proxy.sent) >= due_count)
    await proxy.deliver()


async def kill(server: RedisServer, proxy: Proxy) -> None:
    """Kill Redis, and start it again from its log."""
    await asyncio.sleep(random.uniform(0.5, 1.5))
    server.kill()
    await asyncio.to_thread(server.start)


async def play(fault: Callable[[RedisServer, Proxy], Any], seconds: float, folder: Path) -> str:
    """Run the writers under a fault, and return what became of their writes."""
    server = RedisServer(folder, options=("--appendonly", "yes", "--appendfsync", "always")).start()
    try:
        async with Proxy(server.port) as proxy:
            command = (sys.executable, "-m", "support.once_campaign", proxy.url)
            pipe = subprocess.PIPE
            writers = [
                await asyncio.create_subprocess_exec(*command, str(number), stdin=pipe, stdout=pipe)
                for number in range(WRITERS_COUNT)
            ]
            ends_s, faults = monotonic() + seconds, 0
            try:
                while monotonic() < ends_s:
                    await fault(server, proxy)
                    faults += 1
                told = await asyncio.gather(*(writer.communicate(b"") for writer in writers))
            finally:
                for writer in writers:
                    if writer.returncode is None:
                        writer.kill()
        return f"{fault.__name__}: {faults} faults, " + await judge(server, [json.loads(out) for out, _ in told])
    finally:
        server.stop()


async def judge(server: RedisServer, told: list[Any]) -> str:
    """Compare what is stored with what was acknowledged."""
    acked = Counter((session, text) for each in told for session, text in each["acked"])
    async with Memory.connect(server.url, namespace=NAMESPACE, settings=SETTINGS) as memory:
        stored: Counter[tuple[str, str]] = Counter()
        for session in {session for session, _ in acked}:
            stored.update((session, str(message.content)) for message in await memory.session(session).messages())
        (count,) = await memory.record("shared").get(b"n")
        own = await memory.record("shared").get(*(b"own%d" % number for number in range(WRITERS_COUNT)))
    doubled, lost = sum((stored - acked).values()), sum((acked - stored).values())
    increments = sum(each["increments"] for each in told)
    old = sum(int(value or 0) != each["own"] for value, each in zip(own, told, strict=True))
    return (
        f"{sum(acked.values())} appends: {lost} lost, {doubled} doubled; {increments} increments: "
        f"{int(count or 0) - increments} more than acknowledged; {old} old values"
    )


async def main(seconds: float) -> None:
    """Play each kind of fault."""
    for fault in (deliver_late, kill):
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(await play(fault, seconds, Path(folder)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(write(given[0], int(given[1])) if given[1:] else main(float(given[0])))

"""The server dies within a script that pins, moves, takes back or changes messages: its log is cut, and read twice."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import user
from support.redis_server import RedisServer

from redismem import Memory, Session, Settings
from redismem.context import Summary
from redismem.inspection.check import check
from redismem.originals import Originals
from redismem.protocol import edit_calls
from redismem.protocol.call import Call
from redismem.protocol.edit_calls import View
from redismem.protocol.queue_calls import Job, QueueCalls
from redismem.workers.keeping import kept
from redismem.workers.training import Trainer

SETTINGS = Settings(deadline_s=60, reply_timeout_s=1, threshold=4, recent_limit=2, keep_originals=True, shards=1)
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "always")).start()
    yield server
    server.stop()


async def crash(server: RedisServer, log: Path, content: bytes | None = None) -> None:
    """The server crashes, its log may be another, and it starts."""
    await asyncio.to_thread(server.kill)
    if content is not None:
        await asyncio.to_thread(log.write_bytes, content)
    await asyncio.to_thread(server.start)


async def everything(session: Session) -> list[Any]:
    context = await session.read()
    found = await session.messages(include_originals=True)
    return [
        context.summaries,
        context.to_openai(),
        context.total_messages,
        [(each.seq, each.content) for each in found],
    ]


async def commit(memory: Memory, view: View) -> Call[Any]:
    calls = QueueCalls(memory.store.keys.session("a"), memory.settings)
    job = await memory.store.run(calls.claim())
    assert isinstance(job, Job)
    summary = Summary(f"{view.context.epoch}:2-3", "told", 2, 3, 1, 2, "m", 3, 4, ("x",))
    covered = job.context.messages[:2]
    return calls.commit(job, covered, summary, (), await kept(Trainer(memory.store), calls.keys, job, covered))


async def moved(memory: Memory) -> View:
    """The same session after its pinned message has left the window, with an original of it."""
    view = await viewed(memory)
    await memory.store.run(await commit(memory, view))
    return await viewed(memory)


async def viewed(memory: Memory) -> View:
    view = await memory.store.run(edit_calls.window(memory.store.session_calls("a")))
    assert view is not None
    return view


async def call_of(memory: Memory, write: str) -> Call[Any]:
    """One call, which is sent again as it is."""
    calls = memory.store.session_calls("a")
    if write == "append pinned":
        return calls.append([SYSTEM, user("last")], {"id": "last"})
    view = await (moved(memory) if write.endswith("what left the window") else viewed(memory))
    context, originals = view.context, Originals(memory.store, calls.keys)
    if write.endswith("what left the window"):
        view = await originals.beside(view, context.pinned[0].seq)
        assert view.block is not None
    if write == "commit":
        return await commit(memory, view)
    made: dict[str, Callable[[], Call[Any] | None]] = {
        "prune": lambda: edit_calls.prune(calls, view, 2),
        "pop": lambda: edit_calls.pop(calls, view, context.messages[2:]),
        "replace": lambda: edit_calls.replace(calls, view, context.messages[1], user("new")),
        "replace what left the window": lambda: edit_calls.replace(calls, view, context.pinned[0], user("new")),
        "unpin": lambda: edit_calls.unpin(calls, view, context.pinned[0]),
        "unpin what left the window": lambda: edit_calls.unpin(calls, view, context.pinned[0]),
    }
    call = made[write]()
    assert call is not None
    return call


@pytest.mark.parametrize(
    "write",
    ["append pinned", "commit", "prune", "pop", "replace", "unpin"]
    + [f"{what} what left the window" for what in ("replace", "unpin")],
)
async def test_a_log_that_a_crash_has_cut_within_an_edit_is_read_twice(server: RedisServer, write: str) -> None:
    async with Memory.connect(server.url, settings=SETTINGS) as memory, redis.asyncio.Redis(port=server.port) as raw:
        session = memory.session("a")
        await session.append(SYSTEM, *(user(str(number)) for number in range(5)))
        call = await call_of(memory, write)
        (log,) = (server.folder / "appendonlydir").glob("*.incr.aof")
        before = log.read_bytes()
        assert await memory.store.run(call)
        expected = await everything(session)
        whole = log.read_bytes()
        commands = [
            at for at in range(len(before), len(whole)) if re.match(rb"\*\d+\r\n\$\d+\r\n[A-Z]+\r\n", whole[at:])
        ]
        assert len(commands) > 3, "MULTI, what is set, the messages, EXEC"
        for at in commands[:-1]:
            await crash(server, log, whole[: at + 6])
            await memory.store.run(call.again())
            assert await everything(session) == expected, "sent again, as its answer never came"
            await crash(server, log)
            assert await everything(session) == expected
            assert [violation async for violation in check(memory.store)] == []
        assert not [key async for key in raw.scan_iter("*corrupt*")]

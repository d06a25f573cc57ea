"""Logs of Redis that a crash cut inside a script; Redis replays the first part of the script at its next start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from redismem import Memory, Session, Settings
from redismem.context.results import Summary
from redismem.inspection.check import check
from redismem.protocol.call import Call
from redismem.protocol.queue.calls import Job
from redismem.protocol.session import edits
from redismem.protocol.session.edits import View
from redismem.workers.dictionaries import Trainer
from redismem.workers.originals import build_original_fields
from support.redis_server import RedisServer

SETTINGS = Settings(deadline_s=60, reply_timeout_s=1, threshold=4, recent_limit=2, keep_originals=True, shards=1)


def command_offsets(before: bytes, whole: bytes) -> list[int]:
    """Return the offsets of the commands that the log gained."""
    return [at for at in range(len(before), len(whole)) if re.match(rb"\*\d+\r\n\$\d+\r\n[A-Z]+\r\n", whole[at:])]


def log_path(server: RedisServer) -> Path:
    (log,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    return log


async def crash(server: RedisServer, content: bytes | None = None) -> None:
    """Kill the server, replace its log if `content` is given, and start it."""
    log = log_path(server)
    await asyncio.to_thread(server.kill)
    if content is not None:
        await asyncio.to_thread(log.write_bytes, content)
    await asyncio.to_thread(server.start)


async def read_session(session: Session) -> list[Any]:
    """Return all that a reader sees of a session; `[]` if it does not exist."""
    if not await session.exists():
        return []
    context = await session.read()
    found = await session.messages(include_originals=True)
    return [
        context.summaries,
        context.to_openai(),
        context.total_messages,
        [(each.seq, each.content) for each in found],
    ]


async def read_window(memory: Memory) -> View:
    """Read the window of the session "a" for an edit."""
    view = await memory.store.run(edits.window(memory.store.session_calls("a")))
    assert view is not None
    return view


async def commit(memory: Memory, view: View) -> Call[Any]:
    """Claim the session, and return the commit of a summary of its second and third message."""
    calls = memory.store.queue_calls("a")
    job = await memory.store.run(calls.claim())
    assert isinstance(job, Job)
    summary = Summary(f"{view.context.epoch}:2-3", "told", 2, 3, 1, 2, "m", 3, 4, ("x",))
    covered = job.context.messages[:2]
    return calls.commit(
        job, covered, summary, (), await build_original_fields(Trainer(memory.store), calls.keys, job, covered)
    )


async def do_nothing(session: Session) -> None:
    del session


async def check_cut_anywhere(
    server: RedisServer, memory: Memory, call: Call[Any], after: Callable[[Session], Awaitable[object]] = do_nothing
) -> int:
    """Cut the log inside each command of the call, and retry the call. Returns the number of commands.

    `after` is called with the session "a" after each retry.
    """
    session, before = memory.session("a"), log_path(server).read_bytes()
    assert await memory.store.run(call)
    expected = await read_session(session)
    whole = log_path(server).read_bytes()
    commands = command_offsets(before, whole)
    for at in commands[:-1]:
        await crash(server, whole[: at + 6])
        await memory.store.run(call.again())
        assert await read_session(session) == expected, "retried after a lost reply"
        await after(session)
        then = await read_session(session)
        await crash(server)
        assert await read_session(session) == then
        assert [violation async for violation in check(memory.store)] == []
    return len(commands)

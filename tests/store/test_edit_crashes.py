"""The server dies within a script that pins, moves, takes back or changes messages: its log is cut, and read twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import user
from support.cut_logs import SETTINGS, check_cut_anywhere, commit, viewed
from support.redis_server import RedisServer

from redismem import Memory
from redismem.originals import Originals
from redismem.protocol import edit_calls
from redismem.protocol.call import Call
from redismem.protocol.edit_calls import View

SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "always")).start()
    yield server
    server.stop()


async def moved(memory: Memory) -> View:
    """The same session after its pinned message has left the window, with an original of it."""
    view = await viewed(memory)
    await memory.store.run(await commit(memory, view))
    return await viewed(memory)


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
        assert await check_cut_anywhere(server, memory, call) > 3, "MULTI, what is set, the messages, EXEC"
        assert not [key async for key in raw.scan_iter("*corrupt*")]

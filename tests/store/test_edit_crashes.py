"""The server dies within a script that edits messages: its log is cut, and replayed twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import user
from support.cut_logs import SETTINGS, check_cut_anywhere, commit, read_window
from support.redis_server import RedisServer

from redismem import Memory
from redismem.protocol.call import Call
from redismem.protocol.session import cuts, ending, forget, leaving, pages, replacing
from redismem.protocol.session.edits import Edit, View, edit
from redismem.recall.originals import Originals

SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


async def move_pinned_message(memory: Memory) -> View:
    """The same session once its pinned message has left the window, with an original of it."""
    view = await read_window(memory)
    await memory.store.run(await commit(memory, view))
    return await read_window(memory)


async def archive_oldest(memory: Memory, view: View) -> Edit:
    calls, oldest = memory.store.session_calls("a"), view.context.messages[:3]
    originals = Originals(memory.store, calls.keys)
    fields = await originals.encode_leaving(view.context, view.elements, oldest, with_originals=False)
    return leaving.archive(view, oldest, fields)


async def merge_blocks(memory: Memory) -> Call[Any]:
    """Return the archive of the last of 64 messages, of which the others are in blocks already."""
    session, calls = memory.session("a"), memory.store.session_calls("a")
    await session.append(*(user(str(number)) for number in range(65)))
    await session.archive(40)
    view = await read_window(memory)
    oldest = view.context.messages[:25]
    fields = await Originals(memory.store, calls.keys).encode_leaving(view.context, view.elements, oldest, True)
    assert list(fields) == [b"0", b"s0", b"4", b"s4"]
    return edit(calls, view, leaving.archive(view, oldest, fields), bool)


async def call_of(memory: Memory, write: str) -> Call[Any]:
    """Return one call, which is sent again unchanged."""
    calls = memory.store.session_calls("a")
    if write == "append pinned":
        return calls.append([SYSTEM, user("last")], {"id": "last"})
    view = await (move_pinned_message(memory) if write.endswith("what left the window") else read_window(memory))
    if write == "archive that merges blocks":
        return await merge_blocks(memory)
    if write == "commit":
        return await commit(memory, view)
    return edit(calls, view, await plan_of(memory, view, write), bool)


async def plan_of(memory: Memory, view: View, write: str) -> Edit:
    calls, context = memory.store.session_calls("a"), view.context
    if write == "archive":
        return await archive_oldest(memory, view)
    if write == "rewrite what left the window":
        blocks = await memory.store.run(pages.blocks(calls.keys, cuts.blocks_to_read(view, 3, 10)))
        new = ending.encode(calls, [user("new")], None)
        return ending.rewrite(view, 3, new, cuts.plan_cut(view, 3, blocks, {}))
    if write == "forget what left the window":
        numbers = forget.blocks_to_read(view, {1, 2}, {})
        blocks = await memory.store.run(pages.blocks(calls.keys, numbers))
        read = forget.decode_all(view, blocks, {})
        assert read
        return forget.forget(view, {1, 2, 5}, read, dict.fromkeys(context.summaries))
    made: dict[str, Callable[[], Edit]] = {
        "prune": lambda: leaving.prune(view, context.messages[:3]),
        "pop": lambda: ending.pop(view, context.messages[2:]),
        "rewrite": lambda: ending.rewrite(view, 3, ending.encode(calls, [SYSTEM, user("new")], None)),
        "forget": lambda: forget.forget(view, {1, 3, 4}, {}, {}),
        "rewrite with nothing": lambda: ending.rewrite(view, 1, ending.encode(calls, [], None)),
    }
    if write in made:
        return made[write]()
    old = context.messages[1] if write == "replace" else context.pinned[0]
    is_new = write.startswith("replace")
    changed = replacing.replacement(calls, old, user("new")) if is_new else replacing.unpin(old)
    block = await Originals(memory.store, calls.keys).prepare_change(view, old, changed)
    assert (block is None) == (not write.endswith("what left the window"))
    return replacing.replace(view, old, changed, block)


WRITES = ["append pinned", "commit", "archive that merges blocks", "prune", "pop", "rewrite", "replace", "forget"]
WRITES += [f"{what} what left the window" for what in ("rewrite", "unpin", "forget")]
LIKE_OTHERS = ["archive", "rewrite with nothing", "unpin", "replace what left the window"]


@pytest.mark.parametrize("write", [*WRITES, *(pytest.param(each, marks=pytest.mark.nightly) for each in LIKE_OTHERS)])
async def test_a_log_cut_within_an_edit_is_replayed_twice(server: RedisServer, write: str) -> None:
    async with Memory.connect(server.url, settings=SETTINGS) as memory, redis.asyncio.Redis(port=server.port) as raw:
        session = memory.session("a")
        await session.append(SYSTEM, *(user(str(number)) for number in range(5)))
        call = await call_of(memory, write)
        assert await check_cut_anywhere(server, memory, call) > 3, "MULTI, what is set, the messages, EXEC"
        assert not [key async for key in raw.scan_iter("*corrupt*")]

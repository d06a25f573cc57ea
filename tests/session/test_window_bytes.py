"""The bytes of a window's large messages are known, whatever is appended, edited or summarised."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import user_message
from support.redis_server import RedisServer
from support.stored import read_namespace
from support.stores import Store

from redismem import Memory, NotInWindow, Settings, TooLarge
from redismem.inspection.check import check_session
from redismem.protocol import layout
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

_LIMIT = 64 * 1024
_SIZES = (10, 4_020, 4_040, 4_060, 4_080, 9_000, 20_000)
"""Lengths of texts: the third and fourth are on both sides of the size from which a message is large."""
_KINDS = ("append", "append", "append", "pin", "prune", "pop", "replace", "rewrite", "forget", "drain")
_numbers = itertools.count(1)
steps = st.lists(
    st.tuples(st.sampled_from(_KINDS), st.integers(0, 5), st.lists(st.sampled_from(_SIZES), min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)


def text_of(size: int) -> str:
    return "x" * size


@given(steps=steps)
async def test_whatever_happens_the_bytes_are_those_of_the_window(
    store: Store, namespace: str, raw: Any, steps: list[tuple[str, int, list[int]]]
) -> None:
    settings = Settings(threshold=4, recent_limit=2, max_window_bytes=_LIMIT, keep_originals=False)
    async with store.memory(namespace, settings) as memory:
        session = memory.session(f"s{next(_numbers)}")
        keys = memory.store.keys.session(session.id)
        await session.append(user_message("first"))
        for kind, number, sizes in steps:
            before = await raw.lrange(keys.messages, 0, -1)
            try:
                await _do(memory, session.id, kind, number, [user_message(text_of(size)) for size in sizes])
            except NotInWindow:
                continue
            except TooLarge:
                assert await raw.lrange(keys.messages, 0, -1) == before
            elements = await raw.lrange(keys.messages, 0, -1)
            assert int(await raw.hget(keys.state, "large_bytes") or 0) == layout.large_bytes(elements)
        assert await check_session(memory.store, session.id) == []


async def _do(memory: Memory, session_id: str, kind: str, number: int, messages: list[Any]) -> None:
    session = memory.session(session_id)
    context = await session.read()
    if kind in ("append", "pin"):
        await session.append(*messages, pin=True if kind == "pin" and len(messages[0]["content"]) < 9_000 else None)
    elif kind == "prune":
        await session.prune(number)
    elif kind == "pop":
        await session.pop(number + 1)
    elif kind == "drain":
        await Worker(memory.store, Trim()).drain()
    elif context.messages:
        seq = context.messages[number % len(context.messages)].seq
        if kind == "forget":
            await session.forget(seq)
            return
        await (session.rewrite(seq, messages) if kind == "rewrite" else session.replace(seq, messages[0]))


async def test_an_append_that_is_too_large_by_itself_is_refused_before_anything_is_written(
    store: Store, raw: Any, namespace: str
) -> None:
    async with store.memory(namespace, Settings(max_window_bytes=_LIMIT)) as memory:
        session = memory.session("s")
        await session.append(user_message("first"))
        before = await read_namespace(raw, namespace)
        large = [user_message(text_of(20_000))] * 4
        for refused in (session.append, session.append_and_read, lambda *messages: session.rewrite(1, messages)):
            with pytest.raises(TooLarge, match=f"one append have 80... bytes, over {_LIMIT}, the limit"):
                await refused(*large)
        assert await read_namespace(raw, namespace) == before


async def test_a_window_within_its_limits_can_be_read_under_the_recommended_buffer_limit(tmp_path: Path) -> None:
    """The window is as large as the defaults allow: small messages of the largest size, and all large ones."""
    server = RedisServer(tmp_path, options=("--client-output-buffer-limit", "normal 64mb 16mb 10")).start()
    try:
        settings = Settings(strategy="none", deadline_s=60, reply_timeout_s=20)
        async with Memory.connect(server.url, settings=settings) as memory:
            session = memory.session("s")
            small, large = user_message(text_of(4_050)), user_message(text_of(1_000_000))
            for _ in range(9):
                await session.append(*[small] * 1_000)
            await session.append(*[small] * 974)
            for _ in range(25):
                await session.append(large)
            with pytest.raises(TooLarge, match="9999 messages"):
                await session.append(small, small)
            await session.append(small)
            assert len((await session.read()).messages) == 10_000
    finally:
        server.stop()

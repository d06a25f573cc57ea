"""Forty writers of one session through Agent Framework's providers, over a proxy that loses replies."""

from __future__ import annotations

import asyncio

import pytest
from agent_framework import AgentSession, Message
from support.checks import until
from support.lossy import WRITERS_COUNT, write_lossily
from support.proxy import Proxy
from support.stores import PATIENCE

from redismem import Memory, Settings
from redismem.adapters.agent_framework import HistoryProvider, SessionStore

pytestmark = pytest.mark.filterwarnings(r"ignore:\[SESSION_STORE\]")


@pytest.mark.parametrize("each_count", [2, pytest.param(20, marks=pytest.mark.nightly)])
async def test_nothing_is_lost_or_doubled_and_the_order_stays(proxy: Proxy, namespace: str, each_count: int) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(shards=1, **PATIENCE)) as memory:
        provider, sessions = HistoryProvider(memory=memory), SessionStore(memory=memory)

        async def add(text: str) -> None:
            await provider.save_messages("s", [Message("assistant", [text])])

        async def keep_snapshot() -> list[str]:
            session = AgentSession(session_id="s")
            session.state = {"whole": ["a", "b"]}
            await sessions.set("s", session)
            return []

        async def read_snapshot() -> None:
            session = await sessions.get("s")
            assert session is None or session.state == {"whole": ["a", "b"]}

        async def read() -> list[str]:
            return [message.text for message in await provider.get_messages("s")]

        tally = await write_lossily(proxy, each_count, add, keep_snapshot, read_snapshot, read)
    assert proxy.broken_count > 10
    assert (tally.lost, tally.doubled, tally.out_of_order, tally.unknown) == ([], [], [], [])
    assert len(tally.left) == WRITERS_COUNT * each_count


async def test_a_save_that_is_repeated_after_an_error_is_there_once(proxy: Proxy, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        provider = HistoryProvider(memory=memory)
        turn = [Message("user", ["hello"]), Message("assistant", ["hi"], message_id="m-1")]
        await provider.save_messages("s", [Message("user", ["first"])])
        proxy.break_next("freeze", float("inf"), to=b"hello")
        saving = asyncio.create_task(provider.save_messages("s", turn))
        await until(lambda: proxy.frozen_count)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        proxy.heal()
        async with Memory.connect(f"redis://127.0.0.1:{proxy._server_port}", namespace=namespace) as other:
            await HistoryProvider(memory=other).save_messages("s", turn)
            read = await HistoryProvider(memory=other).get_messages("s")
        assert [message.text for message in read] == ["first", "hello", "hi"]

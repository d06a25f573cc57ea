"""A clear beside other calls of the session, and after a lost reply."""

from __future__ import annotations

import asyncio

import fakeredis
import pytest
from support.checks import until, user
from support.faulty import Fault, Faulty
from support.http_service import numbered_message, serve_memory
from support.proxy import Proxy
from support.stores import LONG_DEADLINES

from redismem import Memory

LARGE, NEW = "x" * 40_000, user("new")


@pytest.mark.parametrize("owner", [None, "ann"])
@pytest.mark.parametrize(("fault", "left"), [("lost after", [NEW["content"]]), ("lost before", [])])
async def test_a_resent_clear_spares_a_session_begun_since(
    namespace: str, fault: Fault, left: list[str], owner: str | None
) -> None:
    server = fakeredis.FakeServer()
    faulty, client = Faulty(server), fakeredis.FakeAsyncRedis(server=server)
    memory = Memory.connect(client=faulty._client, namespace=namespace, settings=LONG_DEADLINES)
    memory.store.transport = faulty
    async with Memory.connect(client=client, namespace=namespace, settings=LONG_DEADLINES) as other:
        await memory.session("a", owner=owner).append(user("old"))

        async def append(seconds: float) -> None:
            del seconds
            await other.session("a").append(NEW)

        faulty.sleep = append  # type: ignore[method-assign]
        faulty.faults.append(fault)
        assert await memory.session("a").clear()
        assert not faulty.faults
        assert [message.content for message in (await other.session("a").read()).messages] == left
    await memory.aclose()
    await faulty.aclose()
    await client.aclose()


@pytest.mark.parametrize("owner", [None, "ann"])
async def test_a_delete_over_http_does_not_overtake_a_large_append(
    proxy: Proxy, namespace: str, owner: str | None
) -> None:
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
        serve_memory(memory) as http,
    ):
        if owner is not None:
            await memory.session("a", owner=owner).append(user("first"))
        proxy.break_next("hold", to=LARGE[:1_000].encode())
        body = {**numbered_message(1), "content": LARGE}
        append = asyncio.create_task(http.ask("POST", "/v1/sessions/a/messages", json=body))
        await until(lambda: proxy.broken_count)
        delete = asyncio.create_task(http.ask("DELETE", "/v1/sessions/a"))
        await until(lambda: delete.done() or memory.store.transport.calls_count > 1)
        proxy.heal()
        assert [(await append).status_code, (await delete).status_code] == [201, 204]
        assert not await memory.session("a").exists()


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_lost_reply_brings_back_nothing_from_before_a_clear(proxy: Proxy, namespace: str, is_new: bool) -> None:
    """The append ran, and its reply is lost. Its resent sending would find a session that forgot its id."""
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        session = memory.session("a")
        await memory.session("other").append(user("loads the script"))
        if not is_new:
            await session.append(user("old"))
        proxy.break_next("reset", to=b"EVALSHA")
        calls = session.append(user("before")), session.merge({"a": 1}), session.clear(), session.append(NEW)
        _, _, cleared, appended = await asyncio.gather(*calls)
        assert (cleared, appended.created) == (True, True)
        context = await session.read()
        assert ([message.content for message in context.messages], context.state.params) == ([NEW["content"]], {})

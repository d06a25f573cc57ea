"""The session for the OpenAI Agents SDK: opening, closing, tenants, loops, cancellation, failures."""

from __future__ import annotations

import asyncio
from typing import Any

import agents
import pytest
import redis.asyncio
from agents import RunContextWrapper, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call
from support.compaction import needs_snapshots
from support.edited import summarize
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, short_deadlines

from redismem import (
    InvalidMessage,
    InvalidSessionId,
    InvalidSettings,
    Memory,
    Settings,
    StoreUnavailable,
)
from redismem.adapters import openai_agents

Session: Any = openai_agents.Session
"""Without types, because the SDK's items are a union of more than thirty."""
ONE: Any = {"role": "user", "content": "one"}
TWO: Any = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
THREE: Any = {"id": "msg_1", "type": None}


async def test_it_is_a_session_of_the_sdk_and_takes_the_arguments_of_its_redis_session(
    redis_server: RedisServer,
) -> None:
    options = {"key_prefix": "from-url", "ttl": 60, "session_settings": {"limit": 2}}
    session: Any = Session.from_url("a", url=redis_server.url, **options)
    assert [type(each) for each in [session] if isinstance(each, agents.Session)] == [Session]
    await session.clear_session()
    await session.add_items([ONE, TWO])
    await session.add_items([])
    await session.add_items([THREE])
    assert await session.get_items() == [TWO, THREE]
    assert await session.get_items(3) == [ONE, TWO, THREE]
    assert await session.get_items(0) == await session.get_items(-1) == []
    session.session_settings = SessionSettings(limit=1)
    assert await session.get_items() == [THREE]
    assert await session.pop_item() == THREE
    async with Memory.connect(redis_server.url, settings=Settings(**PATIENCE)) as memory:
        info = await memory.session("from-url:a").info()
        assert (info.policy.idle_timeout_s, info.policy.keep_whole, info.policy.exempt) == (60, True, True)
    await session.clear_session()
    assert (await session.get_items(), await session.pop_item()) == ([], None)
    await session.close()


async def test_a_session_with_an_owner_is_forgotten_with_the_person(memory: Memory) -> None:
    mine, hers = (Session(name, memory=memory, owner=name) for name in ("me", "her"))
    await mine.add_items([ONE])
    await hers.add_items([ONE])
    assert (await memory.forget(owner="me")).session_count == 1
    assert (await mine.get_items(), await hers.get_items()) == ([], [ONE])
    with pytest.raises(InvalidSessionId):
        Session("a", memory=memory, owner="")


async def test_what_cannot_be_meant_is_refused(redis_server: RedisServer, memory: Memory) -> None:
    with pytest.raises(InvalidSessionId):
        Session("", memory=memory)
    with pytest.raises(InvalidSettings, match="idle_timeout_s"):
        Session("a", memory=memory, ttl=0)
    with pytest.raises(InvalidSettings, match="only one"):
        Session("a", memory=memory, url=redis_server.url)
    with pytest.raises(TypeError, match="redis_client"):
        Session.from_url("a", url=redis_server.url, redis_kwargs={"ssl": True})
    session = Session("a", memory=memory)
    unstorable: Any = [ONE, {"content": object()}]
    with pytest.raises(InvalidMessage, match="agents:session:a: message 2"):
        await session.add_items(unstorable)
    assert await session.get_items() == []


async def test_a_closed_session_raises_and_the_last_one_of_a_url_closes_the_connection(
    redis_server: RedisServer,
) -> None:
    async with Proxy(redis_server.port) as proxy:
        first, second = Session("a", url=proxy.url), Session("b", url=proxy.url)
        assert await first.ping()
        assert await second.ping()
        assert proxy.connections_count == 1
        await first.close()
        await first.close()
        for call in (first.ping, first.get_items, first.pop_item, first.clear_session, lambda: first.add_items([ONE])):
            with pytest.raises(RuntimeError, match="closed"):
                await call()
        assert await second.ping()
        second.close()  # a plain call closes it as well
        with pytest.raises(RuntimeError, match="closed"):
            await second.ping()
        third = Session("c", url=proxy.url)
        assert await third.ping()
        assert proxy.connections_count == 2
        await third.close()


async def test_what_the_caller_opened_the_caller_closes(redis_server: RedisServer, memory: Memory) -> None:
    async with redis.asyncio.Redis(port=redis_server.port) as client:
        for session in (Session("a", memory=memory), Session("a", redis_client=client)):
            await session.close()
            assert await session.ping()


class _Provider(redis.CredentialProvider):
    def get_credentials(self) -> tuple[str, str]:
        return "default", ""


@pytest.mark.parametrize("options", [{}, {"credential_provider": _Provider()}])
async def test_any_client_of_the_caller_serves(redis_server: RedisServer, options: dict[str, Any]) -> None:
    async with redis.asyncio.Redis(port=redis_server.port, **options) as client:
        session = Session(f"client {sorted(options)}", redis_client=client, ttl=60)
        await session.clear_session()
        await session.add_items([ONE, TWO, THREE])
        assert await session.get_items() == [ONE, TWO, THREE]
        assert await session.pop_item() == THREE


async def test_a_tenant_is_chosen_by_the_context_of_the_run(memory: Memory) -> None:
    session = Session("a", memory=memory, key_prefix=lambda wrapper: wrapper.context)
    for tenant in ("acme", "globex"):
        await session.add_items([{"role": "user", "content": tenant}], wrapper=RunContextWrapper(tenant))
    assert await session.get_items(wrapper=RunContextWrapper("acme")) == [{"role": "user", "content": "acme"}]
    assert len(await memory.session("globex:a").tail(9)) == 1
    await session.clear_session(wrapper=RunContextWrapper("acme"))
    assert await session.pop_item(wrapper=RunContextWrapper("acme")) is None
    assert len(await session.get_items(wrapper=RunContextWrapper("globex"))) == 1
    with pytest.raises(TypeError, match="wrapper="):
        await session.get_items()
    for wrong in ("", " ", "acme:b", None):
        with pytest.raises(InvalidSessionId):
            await session.get_items(wrapper=RunContextWrapper(wrong))
    assert await session._get_compaction_snapshot(1) is None
    assert not await session._atomic_replace_items([ONE])


def test_one_session_serves_several_loops_and_threads(redis_server: RedisServer) -> None:
    session = Session("loops", url=redis_server.url, ttl=60)

    async def add(number: int) -> None:
        await session.add_items([{"role": "user", "content": str(number)}])

    async def add_from_threads() -> None:
        await session.clear_session()
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, add(number)) for number in range(4)), add(4))

    asyncio.run(add_from_threads())
    items: Any = asyncio.run(session.get_items())
    assert sorted(item["content"] for item in items) == list("01234")
    session.close()


@pytest.mark.parametrize("mutation", ["add", "pop", "clear", "replace", pytest.param("suffix", marks=needs_snapshots)])
async def test_a_cancelled_write_settles_before_the_caller_hears_of_it(
    redis_server: RedisServer, mutation: str
) -> None:
    async with Proxy(redis_server.port) as proxy, Memory.connect(proxy.url, settings=Settings(**PATIENCE)) as memory:
        session = Session(f"cancelled {mutation}", memory=memory, ttl=60)
        await session.clear_session()
        await session.add_items([ONE, TWO])
        snapshot = await session._get_compaction_snapshot(9)
        calls: dict[str, Any] = {
            "add": (lambda: session.add_items([THREE]), [ONE, TWO, THREE]),
            "pop": (session.pop_item, [ONE]),
            "clear": (session.clear_session, []),
            "replace": (lambda: session._atomic_replace_items([THREE]), [THREE]),
            "suffix": (lambda: snapshot.replace_suffix(1, [THREE]), [ONE, THREE]),
        }
        call, expected = calls[mutation]
        proxy.forget()
        proxy.break_next("delay", 9, delay_s=0.05)
        caller: asyncio.Future[Any] = asyncio.ensure_future(call())
        while not proxy.sent:  # noqa: ASYNC110 (the request is under way)
            await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        proxy.heal()
        assert await session.get_items() == expected


@needs_snapshots
async def test_a_snapshot_replaces_only_what_it_has_seen(memory: Memory) -> None:
    session, writer = Session("a", memory=memory), Session("a", memory=memory)
    empty = await session._get_compaction_snapshot(4)
    assert (empty.items, empty.complete, await empty.replace_suffix(0, [ONE])) == ([], True, False)
    await session.add_items([ONE, TWO])
    changes: list[Any] = [
        lambda: writer.add_items([THREE]),
        writer.pop_item,
        lambda: writer._atomic_replace_items([ONE]),
    ]
    for change in changes:
        snapshot = await session._get_compaction_snapshot(1)
        assert not snapshot.complete
        await change()
        before = await session.get_items()
        assert not await snapshot.replace_suffix(0, [TWO])
        assert await session.get_items() == before
    await memory.session("agents:session:a").append(TWO)
    snapshot = await session._get_compaction_snapshot(9)
    assert snapshot.complete
    await memory.session("agents:session:a").forget((await memory.session("agents:session:a").tail(1))[0].seq)
    assert not await snapshot.replace_suffix(0, [THREE])
    assert await session.get_items() == [ONE]


@needs_snapshots
async def test_expired_items_before_a_replaced_suffix_go_too(memory: Memory) -> None:
    session = Session("a", memory=memory)
    old: Any = [{"__enc__": number} for number in (1, 2, 9, 2)]
    await session.add_items([*old, ONE, TWO])
    snapshot = await session._get_compaction_snapshot(2, prune_prefix=lambda item: item.get("__enc__", 9) < 9)
    assert await snapshot.replace_suffix(0, [THREE])
    assert await session.get_items() == [*old[2:], THREE]


async def test_an_item_is_popped_from_behind_a_summary(memory: Memory) -> None:
    session = Session("a", memory=memory, summarise=True)
    added: Any = [{"role": "user", "content": f"item {number}"} for number in range(30)]
    for at in range(0, 30, 6):
        await session.add_items(added[at : at + 6])
        await summarize(memory)
    summary, *shown = await session.get_items()
    assert "item 1" in str(summary)
    assert added[-len(shown) :] == shown
    assert await session.get_items(28) == added[2:]
    assert [await session.pop_item() for _ in range(29)] == added[:0:-1]
    assert await session.get_items() == added[:1]


async def test_an_outage_is_an_error_that_names_the_session_and_never_an_empty_history(
    redis_server: RedisServer,
) -> None:
    settings = Settings(**PATIENCE)
    async with Proxy(redis_server.port) as proxy, Memory.connect(proxy.url, settings=settings) as memory:
        session = Session("outage", memory=memory, ttl=60)
        await session.clear_session()
        await session.add_items([ONE])
        await proxy.refuse()
        with short_deadlines(memory):
            for call in (session.get_items, session.pop_item, session.clear_session, lambda: session.add_items([TWO])):
                with pytest.raises(StoreUnavailable, match="agents:session:outage"):
                    await call()
            assert not await session.ping()
        await proxy.accept_again()


async def test_a_fallback_serves_and_what_was_added_meanwhile_is_kept(redis_server: RedisServer) -> None:
    settings = Settings(**PATIENCE, fallback=True, fallback_after_s=20)
    async with Proxy(redis_server.port) as proxy:
        async with Memory.connect(proxy.url, settings=settings) as memory:
            session = Session("fallback", memory=memory, ttl=60)
            await session.clear_session()
            await session.add_items([ONE])
            assert await session.get_items() == [ONE]
            await proxy.refuse()
            with short_deadlines(memory):
                await session.add_items([TWO])
                assert await session.get_items() == [ONE, TWO]
                for is_summarised in (False, True):
                    unseen = Session("unseen", memory=memory, summarise=is_summarised)
                    with pytest.raises(StoreUnavailable, match="agents:session:unseen"):
                        await unseen.get_items()
            await proxy.accept_again()
        async with Memory.connect(redis_server.url, settings=Settings(**PATIENCE)) as memory:
            assert await Session("fallback", memory=memory).get_items() == [ONE, TWO]


class Losing(openai_agents.Session):
    """A session that fails once to add the result of a tool, before or after it is stored."""

    fails: str | None = None

    async def add_items(self, items: Any, *, wrapper: Any = None) -> None:
        """Add items, or fail."""
        fails = self.fails if any("output" in item for item in items) else None
        if fails != "before":
            await super().add_items(items, wrapper=wrapper)
        if fails is not None:
            self.fails = None
            raise StoreUnavailable("away", self.session_id, may_be_done=True)


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_a_run_goes_on_after_a_write_of_unknown_outcome_and_stores_it_once(memory: Memory, fails: str) -> None:
    @agents.function_tool(needs_approval=True)
    async def refund() -> str:
        """Refund it."""
        return "refunded"

    agents.set_tracing_disabled(True)
    model = ScriptedModel([[function_call("refund", {}, call_id="c")], [assistant_message("Done.")]])
    agent = agents.Agent(name="shop", tools=[refund], model=model)
    session = Losing("a", memory=memory)
    state = (await agents.Runner.run(agent, "Refund it, please.", session=session)).to_state()
    for waiting in state.get_interruptions():
        state.approve(waiting)
    session.fails = fails
    with pytest.raises(StoreUnavailable):
        await agents.Runner.run(agent, state, session=session)
    state = await agents.RunState.from_json(agent, state.to_json())  # as another process would
    assert (await agents.Runner.run(agent, state, session=session)).final_output == "Done."
    items: Any = await session.get_items()
    kinds = ["user", "function_call", "function_call_output", "message"]
    assert [item.get("type") or item["role"] for item in items] == kinds


async def test_unreadable_bytes_go_into_quarantine(memory: Memory, raw: Any, caplog: pytest.LogCaptureFixture) -> None:
    session = Session("a", memory=memory)
    await session.add_items([ONE])
    await raw.lset(memory.store.keys.session("agents:session:a").messages, 0, b"damaged")
    assert await session.get_items() == []
    assert ["quarantine" in record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [True]
    await session.add_items([TWO])
    assert await session.get_items() == [TWO]

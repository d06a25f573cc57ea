"""An append whose reply was lost is never mistaken for an equal one, and is made once wherever that can be decided."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio
from support.checks import contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.clock import Clock
from support.faulty import OTHERS
from support.proxy import How, Proxy
from support.redis_server import RedisServer

from redismem import FallbackFull, Memory, Settings, StoreUnavailable
from redismem.events import Event
from redismem.protocol.call import Call
from redismem.protocol.layout import LEFT_IDS
from redismem.protocol.session.append_ids import IDS_COUNT

SETTINGS = Settings(deadline_s=60, reply_timeout_s=0.1, fallback_after_s=0.1, strategy="none", max_batch_count=1_000)
YES = user("yes")
SAID = YES["content"]
APART_MS = 100
"""A distance in time at which drifting clocks cannot confuse two stamps, nor a reply that counts as prompt."""


@pytest.fixture
async def memory(proxy: Proxy, namespace: str) -> AsyncIterator[Memory]:
    """A pod with the fallback, behind the proxy, with recorded events."""
    events: list[Event] = []
    async with Memory.connect(
        proxy.url, namespace=namespace, settings=SETTINGS, fallback=True, on_event=events.append
    ) as memory:
        yield memory
    assert {event.message_count for event in events if event.op == "replay"} <= {1, 2, 3}, "each is one append"


async def until_found(memory: Memory) -> None:
    """Wait until the memory has found Redis and checked the namespace, so that its next append is sent at once."""

    async def is_found() -> bool:
        return not (await memory.session("another").read()).degraded

    await until(is_found)


async def lose(memory: Memory, proxy: Proxy, how: How, *messages: object) -> None:
    """Make an append without a reply. With `hole` the server never sees it; with `freeze` it makes it."""
    await until_found(memory)
    proxy.break_next(how, float("inf"))
    assert (await memory.session("a").append(*messages)).degraded  # type: ignore[arg-type]
    await until(lambda: how != "freeze" or proxy.frozen_count)


async def write_others(direct_memory: Memory, count: int = OTHERS) -> list[str]:
    """Append messages, and drop the older ids that the session has kept, as it does after a minute."""
    messages, store = [user(f"other {number}") for number in range(count)], direct_memory.store
    for message in messages:
        await direct_memory.session("a").append(message)
    state = store.keys.session("a").state
    kept: list[bytes] = await store.run(Call(None, (("HKEYS", state),), list))
    for name in [name for name in kept if name.startswith(LEFT_IDS)]:
        await store.run(Call(None, (("HDEL", state, name),), int))
    return [message["content"] for message in messages]


async def wait_for_clock(direct_memory: Memory) -> None:
    """Wait until the server's clock has moved on."""
    begun_ms = await direct_memory.server_time_ms()

    async def is_later() -> bool:
        return await direct_memory.server_time_ms() > begun_ms + APART_MS

    await until(is_later)


async def catch_up(memory: Memory, proxy: Proxy) -> None:
    proxy.heal()

    async def is_empty() -> bool:
        health = memory.health()
        return (health.state, health.backlog_session_count) == ("closed", 0)

    await until(is_empty)


@pytest.mark.parametrize(
    ("how", "others_count", "was_seen"),
    [("hole", 0, True), ("hole", OTHERS, False), ("freeze", 0, False), ("freeze", OTHERS, True)],
)
async def test_an_older_equal_message_is_another_append(
    memory: Memory, direct_memory: Memory, proxy: Proxy, how: How, others_count: int, was_seen: bool
) -> None:
    await direct_memory.session("a").append(user("first"))
    if was_seen:  # this pod never sees the later messages
        await memory.session("a").read()
    await direct_memory.session("a").append(YES)
    before = await write_others(direct_memory)
    await wait_for_clock(direct_memory)
    await lose(memory, proxy, how, YES)
    said = await write_others(direct_memory, others_count)
    await catch_up(memory, proxy)
    found = await contents(direct_memory.session("a"))
    rest = [SAID, *said] if how == "freeze" else [*said, SAID]
    assert found == [user("first")["content"], SAID, *before, *rest]


async def test_an_older_equal_message_is_another_if_a_replay_lost_its_reply(
    memory: Memory, direct_memory: Memory, proxy: Proxy
) -> None:
    await until_found(memory)
    await proxy.refuse()
    assert (await memory.session("a").append(YES)).degraded
    await direct_memory.session("a").append(YES)
    await wait_for_clock(direct_memory)
    proxy.break_next("hole", float("inf"), to=SAID.encode())
    await proxy.accept_again()

    async def is_sent() -> bool:
        return proxy.broken_count > 0

    await until(is_sent)
    said = await write_others(direct_memory)
    await catch_up(memory, proxy)
    assert await contents(direct_memory.session("a")) == [SAID, *said, SAID]


async def test_an_append_that_was_never_sent_is_not_searched(
    memory: Memory, direct_memory: Memory, proxy: Proxy, redis_server: RedisServer
) -> None:
    await until_found(memory)
    await direct_memory.session("a").append(YES)
    await proxy.refuse()
    assert (await memory.session("a").append(YES)).degraded
    said = await write_others(direct_memory)
    await proxy.accept_again()
    await catch_up(memory, proxy)
    assert await contents(direct_memory.session("a")) == [SAID, *said, SAID]
    keys = direct_memory.store.keys.session("a")
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        assert not await raw.hexists(keys.state, "repeated"), "an append that was sent twice makes later ones slower"


@pytest.mark.parametrize("size", [1, 3])
async def test_equal_messages_of_others_have_other_times(
    proxy: Proxy, direct_memory: Memory, namespace: str, size: int
) -> None:
    """With the memory's own clock the times are exact."""
    async with Memory.connect(
        proxy.url, namespace=namespace, settings=SETTINGS, fallback=True, clock=Clock()
    ) as memory:
        await lose(memory, proxy, "hole", *[YES] * size)
        for _ in range(size):
            await direct_memory.session("a").append(YES)
        said = await write_others(direct_memory)
        await catch_up(memory, proxy)
        assert await contents(direct_memory.session("a")) == [*[SAID] * size, *said, *[SAID] * size]


async def test_an_older_equal_message_is_another_if_redis_answers_late(
    direct_memory: Memory, proxy: Proxy, namespace: str
) -> None:
    """The delay of its answer makes the time of the append uncertain."""
    settings = SETTINGS.model_copy(update={"reply_timeout_s": 0.6, "fallback_after_s": 0.6})
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
        await direct_memory.session("a").append(YES)
        before = await write_others(direct_memory)
        await wait_for_clock(direct_memory)
        await lose(memory, proxy, "hole", YES)
        proxy.forget()
        proxy.break_next("delay", 1, to=direct_memory.store.keys.session("a").state, delay_s=0.5)
        await until(lambda: proxy.broken_count)
        await catch_up(memory, proxy)
        assert await contents(direct_memory.session("a")) == [SAID, *before, SAID]


async def test_messages_of_two_appends_are_not_one_append(memory: Memory, direct_memory: Memory, proxy: Proxy) -> None:
    """All messages of an append have the same time."""
    no = user("no")
    await lose(memory, proxy, "hole", YES, no)
    await direct_memory.session("a").append(YES)
    await wait_for_clock(direct_memory)
    await direct_memory.session("a").append(no)
    said = await write_others(direct_memory)
    await catch_up(memory, proxy)
    assert await contents(direct_memory.session("a")) == [SAID, no["content"], *said, SAID, no["content"]]


@pytest.mark.parametrize("forgotten_count", [500, 501])
async def test_the_search_ends_in_a_session_of_any_length(
    proxy: Proxy, direct_memory: Memory, namespace: str, forgotten_count: int
) -> None:
    """By this clock every message may be later than the append, so each page is read."""
    clock = Clock(await direct_memory.server_time_ms() - 60_000)
    async with Memory.connect(proxy.url, namespace=namespace, settings=SETTINGS, fallback=True, clock=clock) as memory:
        before = [user(number) for number in range(forgotten_count)]
        for part in (before[:250], before[250:]):
            await direct_memory.session("a").append(*part)
        await lose(memory, proxy, "hole", YES)
        said = await write_others(direct_memory, IDS_COUNT)
        await catch_up(memory, proxy)
        assert await contents(direct_memory.session("a")) == [*(message["content"] for message in before), *said, SAID]


async def test_an_append_on_two_pages_is_found(memory: Memory, direct_memory: Memory, proxy: Proxy) -> None:
    mine = [YES, user("no"), YES]
    await direct_memory.session("a").append(*mine)
    await wait_for_clock(direct_memory)
    await lose(memory, proxy, "freeze", *mine)
    since = [user(number) for number in range(498)]
    await direct_memory.session("a").append(*since[:249])
    await direct_memory.session("a").append(*since[249:])
    said = await write_others(direct_memory, IDS_COUNT)
    await catch_up(memory, proxy)
    wanted = [message["content"] for message in (*mine, *mine, *since)]
    assert await contents(direct_memory.session("a")) == [*wanted, *said]


@pytest.mark.parametrize("how", ["hole", "freeze"])
async def test_an_undecidable_append_is_repeated_rather_than_lost(
    memory: Memory, direct_memory: Memory, proxy: Proxy, redis_server: RedisServer, how: How
) -> None:
    """The keys were made persistent, so nothing tells the server's time."""
    await direct_memory.session("a").append(YES)
    await lose(memory, proxy, how, YES)
    said = await write_others(direct_memory)
    keys = direct_memory.store.keys.session("a")
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        await raw.persist(keys.state)
    await catch_up(memory, proxy)
    assert await contents(direct_memory.session("a")) == [SAID, *([SAID] if how == "freeze" else []), *said, SAID]


@pytest.mark.parametrize("full", [False, True], ids=["expect", "full"])
async def test_a_sent_but_refused_append_says_that_it_may_be_done(
    direct_memory: Memory, proxy: Proxy, namespace: str, full: bool
) -> None:
    settings = SETTINGS.model_copy(update={"max_backlog_bytes": 1_024}) if full else SETTINGS
    said = user("yes" * 1_000) if full else YES
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
        await direct_memory.session("a").append(user("first"))
        await until_found(memory)
        proxy.break_next("freeze", float("inf"))
        with pytest.raises(StoreUnavailable) as sent:
            await memory.session("a").append(said, expect=None if full else 1)
        assert sent.value.may_be_done
        await until(lambda: proxy.frozen_count)
        with pytest.raises(StoreUnavailable) as unsent:
            await memory.session("a").append(said, expect=None if full else 1)
        assert not unsent.value.may_be_done
        assert isinstance(sent.value, FallbackFull) == isinstance(unsent.value, FallbackFull) == full
        assert await contents(direct_memory.session("a")) == [user("first")["content"], said["content"]]

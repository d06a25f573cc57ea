"""Error replies of the server: each raises with its word, nothing is half done, and lasting ones fail at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import catch_unavailable, check_silent, contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.server_words import PASSING, config, loading
from support.stores import short_deadlines

import redismem.blocking
from redismem import Memory, NotAllowed, Session, Settings, StoreUnavailable

# Long: a call that fails at once must not wait for it. Short: a call is retried to the end.
LONG = Settings(deadline_s=60, reply_timeout_s=20)
SHORT = Settings(deadline_s=0.3, reply_timeout_s=0.2)
WRITES: list[Callable[[Session], Coroutine[Any, Any, object]]] = [
    lambda session: session.append(user("refused")),
    lambda session: session.append_and_read(user("refused"), merge={"refused": 1}),
    lambda session: session.merge({"refused": 1}),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server whose configuration these tests change; each test restores it."""
    server = RedisServer(tmp_path_factory.mktemp("words"), options=("--busy-reply-threshold", "20")).start()
    yield server
    server.stop()


@pytest.fixture
async def raw(server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=server.port) as raw:
        yield raw


@pytest.fixture
async def proxy(server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as proxy:
        yield proxy


async def snapshot(raw: Any, namespace: str) -> dict[bytes, Any]:
    keys = sorted([key async for key in raw.scan_iter(f"*{namespace}*")])
    return {key: (await raw.dump(key), await raw.pexpiretime(key)) for key in keys}


async def check_refused_at_once(proxy: Proxy, raw: Any, session: Session, namespace: str, word: str) -> None:
    """Check that each write fails after one attempt, with the word, and writes nothing."""
    before = await snapshot(raw, namespace)
    for write in WRITES:
        proxy.forget()
        error = await catch_unavailable(write(session))
        assert (error.reason, error.session_id) == (word, session.id)
        assert word in str(error)
        assert proxy.count(b"EVALSHA") == 1
    assert await snapshot(raw, namespace) == before


async def window_bytes(raw: Any, session: Session) -> int:
    return int(await raw.memory_usage(session._calls.keys.messages, samples=0) or 0)


async def test_out_of_memory(server: RedisServer, proxy: Proxy, raw: Any, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG) as memory:
        session, other = memory.session("a"), memory.session("b")
        for number in range(8):
            await session.append(user(str(number) * 200_000), merge={"number": number})
            await other.append(user(str(number) * 200_000))
        whole = await session.read()
        assert len(whole.messages) == 8
        async with config(raw, maxmemory="1"):
            await check_refused_at_once(proxy, raw, session, namespace, "OOM")
            await check_refused_at_once(proxy, raw, memory.session("new"), namespace, "OOM")
            assert (await session.read()) == whole
            assert (await session.read(limit=3)).messages == whole.messages[-3:]
            assert (await memory.session("new").read()).messages == []
            used_bytes = await window_bytes(raw, session)
            assert await session.prune(2) == 6
            assert await window_bytes(raw, session) < used_bytes - 1_000_000
            assert [len(text) for text in await contents(session)] == [len(user("x" * 200_000)["content"])] * 2
            # The client that frees memory may be new.
            async with Memory.connect(server.url, namespace=namespace, settings=LONG) as late:
                assert await late.session("b").clear()
            assert await window_bytes(raw, other) == 0
            assert not await other.exists()
        assert (await session.append(user("after"))).last_seq == 9
        assert await session.params() == {"number": 7}
        assert (await other.append(user("after"))).created


@pytest.mark.parametrize("refused", ["evalsha", "hgetall"])
async def test_not_permitted(refused: str, proxy: Proxy, raw: Any, namespace: str) -> None:
    await raw.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", f"-{refused}")
    url = proxy.url.replace("redis://", "redis://app:pw@")
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG) as memory:
        await memory.session("a").append(user("first"))
    async with Memory.connect(url, namespace=namespace, settings=LONG) as memory:
        before = await snapshot(raw, namespace)
        proxy.forget()
        with pytest.raises(NotAllowed, match="NOPERM") as raised:
            await memory.session("a").append_and_read(user("refused"))
        check_silent(raised.value)
        assert raised.value.command == refused
        assert proxy.count(b"EVALSHA") == 1
        assert await snapshot(raw, namespace) == before


@pytest.mark.parametrize(
    ("credentials", "word"), [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("nobody:wrong@", "WRONGPASS")]
)
async def test_a_failed_login_is_refused(credentials: str, word: str, proxy: Proxy, raw: Any, namespace: str) -> None:
    url = proxy.url.replace("redis://", f"redis://{credentials}")

    def blocking() -> StoreUnavailable:
        memory = redismem.blocking.Memory.connect(url, namespace=namespace, settings=LONG)
        with pytest.raises(StoreUnavailable) as raised:
            memory.session("a").append(user())
        memory.close()
        return raised.value

    async with config(raw, requirepass="right"):
        memory = Memory.connect(url, namespace=namespace, settings=LONG)
        for call in (memory.session("a").append_and_read(user()), memory.ping()):
            error = await catch_unavailable(call)
            assert error.reason == word
            assert "wrong" not in str(error)
        await memory.aclose()
        error = await asyncio.to_thread(blocking)
        check_silent(error)
        assert error.reason == word
    assert proxy.connections_count <= 3, "one attempt a call"


async def test_a_failing_disk_is_refused(server: RedisServer, proxy: Proxy, raw: Any, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG) as memory:
        session = memory.session("a")
        await session.append(user("first"))
        obstacle = server.folder / "dump.rdb"
        obstacle.mkdir()
        try:
            async with config(raw, save="3600 1"):
                await raw.bgsave()

                async def failed() -> bool:
                    persistence: dict[str, Any] = await raw.info("persistence")
                    return bool(persistence["rdb_last_bgsave_status"] == "err")

                await until(failed)
                await check_refused_at_once(proxy, raw, session, namespace, "MISCONF")
                assert len((await session.read()).messages) == 1
        finally:
            obstacle.rmdir()
            await raw.save()
        assert (await session.append(user("after"))).last_seq == 2


@pytest.mark.parametrize("word", PASSING)
async def test_transient_server_errors_are_retried_until_the_deadline(
    word: str, proxy: Proxy, raw: Any, namespace: str
) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG) as memory:
        session = memory.session("a")
        await session.append(user("first"))
        before = await snapshot(raw, namespace)
        unsure_count = 0

        async def is_retried(write: Callable[[Session], Coroutine[Any, Any, object]], deadline_s: float) -> bool:
            nonlocal unsure_count
            proxy.forget()
            with short_deadlines(memory, after_s=deadline_s):
                error = await catch_unavailable(write(session))
            unsure_count += error.may_be_done
            refusals_count = b"".join(proxy.received).count(f"-{word}".encode())
            return error.reason == word and refusals_count > 2

        async with PASSING[word](raw):
            for write in WRITES:
                deadline_s = 0.3
                while not await is_retried(write, deadline_s):  # a busy machine leaves time for fewer attempts
                    deadline_s = min(2 * deadline_s, 10)
        # A call without a reply may arrive once the server takes calls again. Then it is whole.
        made_count = await raw.llen(session._calls.keys.messages) - 1
        assert 0 <= made_count <= unsure_count
        assert unsure_count or await snapshot(raw, namespace) == before


@pytest.mark.parametrize("word", PASSING)
async def test_a_call_succeeds_once_the_server_is_ready_again(
    word: str, proxy: Proxy, raw: Any, namespace: str
) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG) as memory:
        session = memory.session("a")
        await session.append(user("first"))
        async with PASSING[word](raw):
            proxy.forget()
            calls = [asyncio.create_task(write(session)) for write in WRITES]

            async def are_all_refused() -> bool:
                return sum(f"-{word}".encode() in chunk for chunk in proxy.received) > 3

            await until(are_all_refused)
        await asyncio.gather(*calls)
        assert (await session.info()).total_messages == 3
        assert len(await contents(session)) == 3


async def test_a_server_that_loads_its_data(tmp_path: Path, namespace: str) -> None:
    async with (
        loading(tmp_path) as (server, go_on),
        aclosing(Memory.connect(server.url, namespace=namespace, settings=SHORT)) as hasty,
        Proxy(server.port) as proxy,
        aclosing(Memory.connect(proxy.url, namespace=namespace, settings=LONG)) as memory,
    ):

        async def is_told() -> bool:
            error = await catch_unavailable(hasty.session("a").append_and_read(user("refused")))
            return error.reason == "LOADING"  # its replies are slow to come

        await until(is_told)
        waiting = asyncio.create_task(memory.session("a").append_and_read(user("first")))

        async def is_refused() -> bool:
            return sum(b"-LOADING" in chunk for chunk in proxy.received) > 2

        await until(is_refused)
        await go_on()
        assert [message.content for message in (await waiting).messages] == [user("first")["content"]]

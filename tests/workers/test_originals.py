"""Kept originals: read page by page, expired, and never taken from an earlier session of the same id."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.compressed import compress_window
from support.damage import put_block_aside
from support.quarantined import quarantine_of
from support.redis_server import RedisServer
from support.stores import Store
from support.worked import open_with, seqs
from support.writers import Echo, chat_message, fill

from redismem import Settings
from redismem.blocking import memory as blocking
from redismem.inspection.check import check_session
from redismem.messages import compression
from redismem.originals.blocks import decode_block, encode_block
from redismem.originals.dictionaries import ZstdDictionary
from redismem.workers.summaries import Worker


async def test_kept_originals_can_be_read_page_by_page(store: Store, namespace: str) -> None:
    async with open_with(store, namespace, keep_originals=True) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        for first in range(1, 1201, 600):
            await session.append(*(chat_message(number) for number in range(first, first + 600)))
            await worker.drain()
        assert await seqs(session) == list(range(1195, 1201))
        assert [message.seq for message in await session.messages()] == list(range(1195, 1201))
        everything = await session.messages(include_originals=True)
        assert [message.content for message in everything] == [
            chat_message(number)["content"] for number in range(1, 1201)
        ]
        assert [message.seq for message in everything] == list(range(1, 1201))
        part = await session.messages(limit=700, before=1198, include_originals=True)
        assert [message.seq for message in part] == list(range(498, 1198))


async def test_originals_live_as_long_as_their_session(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 11)
        await worker.drain()
        assert (await session.info()).expires_ms == await raw.pexpiretime(keys.originals)
        for key in (keys.state, keys.messages, keys.originals):
            await raw.pexpire(key, 5_000_000)
        assert await session.touch()
        assert (await session.info()).expires_ms == await raw.pexpiretime(keys.originals) > await raw.pttl(keys.state)
        await raw.delete(keys.originals)  # as a store does that drops keys by itself
        assert [message.seq for message in await session.messages(include_originals=True)] == list(range(6, 12))
        await fill(session, 6)
        await worker.drain()
        found = await session.messages(include_originals=True)
        assert [message.seq for message in found] == list(range(6, 18)), "from the new originals on, without a gap"


async def test_blocks_grow_with_each_commit(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        for first in range(1, 90, 7):
            await session.append(*(chat_message(number) for number in range(first, first + 7)))
            await worker.drain()
            found = await session.messages(include_originals=True)
            assert [message.content for message in found] == [
                chat_message(seq)["content"] for seq in range(1, first + 7)
            ]
            last = found[-1].seq - 6
            fields = {int(field.lstrip(b"s")) for field in await raw.hkeys(keys.originals)}
            merged = {0} if last >= 64 else set()
            assert fields == (merged | set(range(4 * len(merged), (last - 1) // 16 + 1)) if first > 1 else set())


async def test_a_prune_leaves_a_block_that_begins_in_its_middle(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 11)
        await worker.drain()
        await fill(session, 3)
        assert await session.prune(4) == 5
        assert not await raw.exists(keys.originals)
        await fill(session, 20)
        await worker.drain()
        found = await session.messages(include_originals=True)
        assert [message.seq for message in found] == list(range(11, 35))


FOREIGN = {"foreign": b"foreign", "another version": b"\x07\0\x10", "cut": None}


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_block_that_cannot_be_read_goes_alone(
    store: Store, namespace: str, raw: Any, foreign: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_with(store, namespace) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 46)
        await worker.drain()
        last = 46 - 6
        stored = await raw.hget(keys.originals, number)
        broken = FOREIGN[foreign] or stored[:-3]
        await raw.hset(keys.originals, number, broken)
        if number == 2:  # a worker is the first who meets it
            await fill(session, 11)
            await worker.drain()
            last = 46 + 11 - 6
        lost = set(range(16 * number + 1, min(16 * number + 16, 40) + 1))
        for _ in range(2):
            found = await session.messages(include_originals=True)
            assert {message.seq for message in found} == set(range(1, last + 7)) - lost
        if number < 2:
            assert await raw.hget(keys.originals, number) == broken, "reads change nothing"
            await put_block_aside(memory, "a", number)
        assert not await raw.hexists(keys.originals, number) or number == 2
        (aside,) = [key async for key in raw.scan_iter(quarantine_of(keys) + b":*:originals")]
        assert await raw.hgetall(aside) == {b"%d" % number: broken}
        assert await raw.pttl(aside) > 0
        told = [record.levelname for record in caplog.records if "a block of originals" in record.message]
        assert told == ["ERROR"] * (1 if number == 2 else 2), "once by all reads, once by the move"
        assert not await check_session(memory.store, "a")


@pytest.mark.parametrize("kept_count", [1, 4, 9])
async def test_after_a_lost_end_of_a_block_no_original_has_the_seq_of_another(
    store: Store, namespace: str, raw: Any, kept_count: int
) -> None:
    """A replica that takes over may lack the newest write of a block."""
    async with open_with(store, namespace) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await session.append(*map(chat_message, range(1, 11 + 6)))
        await worker.drain()
        first_seq, elements = decode_block(0, await raw.hget(keys.originals, 0))
        assert (first_seq, len(elements)) == (1, 10)
        await raw.hset(keys.originals, 0, encode_block(1, elements[:kept_count]))
        for number in range(17, 17 + 11):
            await session.append(chat_message(number))
        await worker.drain()
        found = {message.seq: message.content for message in await session.messages(include_originals=True)}
        assert found.items() <= {number: chat_message(number)["content"] for number in range(1, 28)}.items()
        assert set(range(11, 28)) <= set(found), "the others are there"


async def test_originals_of_an_earlier_session_do_not_come_back(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace, keep_originals=True) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 11, "old")
        await worker.drain()
        await raw.delete(keys.messages, keys.state)  # as when they expire, long before the originals
        assert await raw.exists(keys.originals)
        await fill(session, 10, "new")
        contents = [message.content for message in await session.messages(include_originals=True)]
        assert contents == [chat_message(number, "new")["content"] for number in range(1, 11)]
        await session.append(chat_message(11, "new"))
        await worker.drain()
        contents = [message.content for message in await session.messages(include_originals=True)]
        assert contents == [chat_message(number, "new")["content"] for number in range(1, 12)]
        assert await session.clear()
        assert not await raw.exists(keys.originals)


@pytest.fixture
def unpacked_in(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Record the threads in which blocks of originals and compressed messages were decompressed."""
    threads, decompress, decode_frame = set[int](), ZstdDictionary.decompress, compression.decode_frame

    def of_block(known: ZstdDictionary, frame: bytes) -> bytes:
        threads.add(threading.get_ident())
        return decompress(known, frame)

    def of_window(frame: object) -> Any:
        threads.add(threading.get_ident())
        return decode_frame(frame)

    monkeypatch.setattr(ZstdDictionary, "decompress", of_block)
    monkeypatch.setattr("redismem.messages.decoding.decode_frame", of_window)
    return threads


LONG = "Biscuit " * 10_000


@pytest.mark.parametrize("content", ["short", LONG])
async def test_a_page_that_is_large_unpacked_is_unpacked_in_a_thread(
    store: Store, namespace: str, unpacked_in: set[int], content: str
) -> None:
    async with open_with(store, namespace, max_summary_bytes=1 << 20) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        await session.append({"role": "user", "content": content})
        await fill(session, 120)
        await worker.drain()
        unpacked_in.clear()
        assert (await session.messages(include_originals=True))[0].content == content
        assert len(unpacked_in) == 1
        assert (threading.get_ident() in unpacked_in) == (content == "short")


async def test_so_is_a_window_of_compressed_messages(
    raw: Any, store: Store, namespace: str, unpacked_in: set[int]
) -> None:
    async with open_with(store, namespace) as memory:
        session = memory.session("a")
        for content in ("short " * 1_000, LONG):
            await session.append({"role": "user", "content": content})
            await raw.hdel((keys := memory.store.keys.session("a")).state, "large_bytes")
            await compress_window(raw, keys)
            unpacked_in.clear()
            assert (await session.messages())[-1].content == content
            assert (threading.get_ident() in unpacked_in) == (content != LONG)


async def test_a_block_is_changed_in_a_thread_and_tokens_are_counted_in_the_callers(
    store: Store, namespace: str, unpacked_in: set[int]
) -> None:
    counted_in = list[int]()

    def count_tokens(message: dict[str, Any]) -> int:
        counted_in.append(threading.get_ident())
        return len(str(message))

    async with store.memory(namespace, Settings(max_summary_bytes=1 << 20), count_tokens=count_tokens) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        await session.append({"role": "user", "content": "old"}, pin=True)
        await fill(session, 40)
        await worker.drain()
        for change in (session.replace(1, {"role": "user", "content": "new"}), session.unpin(1)):
            unpacked_in.clear()
            await change
            assert len(unpacked_in) == 1
            assert threading.get_ident() not in unpacked_in
        assert (await session.messages(include_originals=True))[0].content == "new"
    assert set(counted_in) == {threading.get_ident()}


@pytest.mark.parametrize("where", ["real", "embedded"])
def test_a_blocking_caller_unpacks_it_himself(
    redis_server: RedisServer, namespace: str, unpacked_in: set[int], where: str
) -> None:
    url = redis_server.url if where == "real" else "memory://"
    with blocking.Memory.connect(url, namespace=namespace) as memory:
        session = memory.session("a")
        session.append({"role": "user", "content": LONG})
        assert session.archive(1) is not None
        assert session.messages(include_originals=True)[0].content == LONG
    assert unpacked_in == {threading.get_ident()}

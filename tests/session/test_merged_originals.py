"""Originals in merged blocks are read, changed and forgotten as a plain list would be."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.damage import put_block_aside
from support.stores import Store
from support.worked import open_with
from support.writers import Echo, chat_message

from redismem import Memory, NotInWindow, Session
from redismem.inspection.check import check_session
from redismem.originals.blocks import is_merged
from redismem.workers.summaries import Worker

SEQS = st.integers(1, 150)
STEPS = st.one_of(
    st.tuples(st.just("archive"), st.integers(1, 70)),
    st.tuples(st.just("summarise"), st.integers(1, 40)),
    st.tuples(st.just("forget"), st.sets(SEQS, min_size=1, max_size=3)),
    st.tuples(st.just("rewrite"), SEQS),
    st.tuples(st.just("unpin"), st.just(None)),
)


async def merged_count(memory: Memory, raw: Any, session: Session) -> int:
    stored = await raw.hgetall(memory.store.keys.session(session.id).originals)
    return sum(is_merged(value) for name, value in stored.items() if name.isdigit())


async def contents(session: Session) -> dict[int, Any]:
    return {message.seq: message.content for message in await session.messages(include_originals=True)}


class Told:
    """A session, and the plain list that it must equal."""

    def __init__(self, memory: Memory, session: Session) -> None:
        self.session = session
        self.expected: dict[int, Any] = {}
        self.worker = Worker(memory.store, Echo())

    async def append(self, count: int) -> None:
        for pinned in range(1 if not self.expected else 0, -1, -1):
            texts = [f"word{len(self.expected) + at} of many" for at in range(1 if pinned else count)]
            receipt = await self.session.append(
                *({"role": "user", "content": text} for text in texts), pin=bool(pinned)
            )
            self.expected |= dict(enumerate(texts, receipt.first_seq))

    async def take(self, step: str, with_what: Any) -> None:
        session = self.session
        if step == "archive":
            await self.append(with_what)
            await session.archive(with_what)
        elif step == "summarise":
            await self.append(with_what)
            await self.worker.drain()
        elif step == "forget":
            for seq in (await session.forget(*with_what)).seqs:
                self.expected.pop(seq, None)
        elif step == "unpin" and 1 in self.expected:
            if (await session.read()).pinned:
                await session.unpin(1)
        elif step == "rewrite" and with_what <= max(self.expected, default=0):
            receipt = await session.rewrite(with_what, [{"role": "user", "content": f"instead of {with_what}"}])
            self.expected = {seq: text for seq, text in self.expected.items() if seq < with_what}
            self.expected[receipt.last_seq] = f"instead of {with_what}"


@given(st.lists(STEPS, min_size=1, max_size=4))
async def test_any_order_of_changes_leaves_what_a_plain_list_would(
    store: Store, namespace: str, steps: list[tuple[str, Any]]
) -> None:
    async with open_with(store, namespace) as memory:
        session = memory.session("a")
        await session.clear()
        told = Told(memory, session)
        await told.append(3)
        for step, with_what in [("archive", 66), *steps]:
            try:
                await told.take(step, with_what)
            except NotInWindow:
                assert step == "rewrite", "too long ago: forgotten messages made it unclear what would come back"
            assert await contents(session) == told.expected
        assert await check_session(memory.store, "a") == []
        newest = await session.messages(limit=10, before=70, include_originals=True)
        seqs = sorted(seq for seq in told.expected if seq < 70)
        assert {each.seq: each.content for each in newest} == {
            seq: told.expected[seq] for seq in seqs if seq >= (newest[0].seq if newest else 70)
        }


async def test_what_is_forgotten_in_a_merged_block_is_nowhere(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, key = memory.session("a"), memory.store.keys.session("a").originals
        await session.append(*(chat_message(seq) for seq in range(1, 60)))
        await session.append({"role": "user", "content": "The dog is called Biscuit."})
        await session.append(*(chat_message(seq) for seq in range(61, 80)))
        await session.archive(70)
        assert await merged_count(memory, raw, session) == 1
        assert 60 in [each.seq for each in await session.recall("Biscuit", limit=1)]
        # A crash may leave a block beside the merged one that contains it.
        await raw.hset(key, mapping={"3": b"Biscuit", "s3": b"Biscuit", "v1": b"of others", "v3": b"of Biscuit"})
        await session.forget(60)
        assert await raw.hmget(key, "3", "s3", "v1", "v3") == [None, None, b"of others", None]
        assert 60 not in await contents(session)
        assert len(await contents(session)) == 78
        assert await session.recall("Biscuit") == []
        await raw.hdel(key, "v1")
        assert await check_session(memory.store, "a") == []


async def test_a_merged_block_that_cannot_be_read_goes_alone(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, key = memory.session("a"), memory.store.keys.session("a").originals
        await session.append(*(chat_message(seq) for seq in range(1, 151)))
        await session.archive(140)
        assert await merged_count(memory, raw, session) == 2
        damaged = bytearray(await raw.hget(key, "0"))
        damaged[-1] ^= 1
        await raw.hset(key, mapping={"0": bytes(damaged), "v2": b"of it", "v5": b"of others"})
        page = await session.messages(20, before=41, include_originals=True)
        assert page == []
        assert list(await contents(session)) == list(range(65, 151))
        assert await raw.hget(key, "0") == damaged, "reads change nothing"
        await put_block_aside(memory, "a", 0)
        assert await raw.hmget(key, "0", "s0", "v2", "v5") == [None, None, None, b"of others"]
        await raw.hdel(key, "v5")
        assert await check_session(memory.store, "a") == []
        await session.append(*(chat_message(seq) for seq in range(151, 200)))
        await session.archive(50)
        assert await merged_count(memory, raw, session) == 1, "the second; of the third, twelve are missing"
        assert list(await contents(session)) == list(range(65, 200))


async def test_begun_blocks_are_merged_with_those_before_them(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session = memory.session("a")
        for count, merged in ((40, 0), (23, 0), (1, 1), (63, 1), (2, 2)):
            await session.append(*(chat_message(seq) for seq in range(count)))
            await session.archive(count)
            assert await merged_count(memory, raw, session) == merged
            assert await check_session(memory.store, "a") == []
        assert len(await contents(session)) == 129

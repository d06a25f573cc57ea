"""The bytes of a dead connection reach Redis late, after the call was resent: the late sending changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.conversations import contents, user_message
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import short_deadlines

from redismem import Memory, Policy, Session, Settings, StoreUnavailable
from redismem.record import Change

_SCRIPT = b"EVALSHA"
_MORE = 20


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def memory(proxy: Proxy, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(deadline_s=5)) as memory:
        yield memory


@pytest.fixture
async def session(memory: Memory) -> Session:
    session = memory.session("s")
    await session.append(user_message("first"))
    return session


async def append_more(session: Session) -> list[str]:
    """Append more messages than the ring of append ids holds, and return their contents."""
    more = [f"more {number}" for number in range(_MORE)]
    for text in more:
        await session.append(user_message(text))
    return more


async def read(session: Session) -> list[str]:
    return contents((await session.read()).messages)


@pytest.mark.parametrize("lost_count", [1, 2])
@pytest.mark.parametrize("id", [None, "turn-1"])
async def test_a_resent_append_is_made_once(proxy: Proxy, session: Session, lost_count: int, id: str | None) -> None:
    proxy.break_next("late", lost_count, _SCRIPT)
    assert not (await session.append(user_message("x"), id=id)).duplicate
    more = await append_more(session)
    late = await proxy.deliver()
    assert len(late) == lost_count
    assert all(b"OVERTAKEN" in reply for reply in late)
    assert await read(session) == ["first", "x", *more]


async def test_a_known_append_overtakes_its_other_attempts(proxy: Proxy, session: Session) -> None:
    """Redis makes the first attempt, the second one is late, and the third is told the receipt."""
    proxy.break_next("reset", 2, _SCRIPT, then="late")
    receipt = await session.append(user_message("x"))
    assert (receipt.first_seq, receipt.duplicate) == (2, False)
    more = await append_more(session)
    await proxy.deliver()
    assert await read(session) == ["first", "x", *more]


async def test_an_old_value_does_not_come_back(proxy: Proxy, session: Session) -> None:
    proxy.break_next("late", 1, _SCRIPT)
    await session.merge({"n": -1})
    for number in range(_MORE):
        await session.merge({"n": number})
    await proxy.deliver()
    assert await session.params() == {"n": _MORE - 1}


async def test_a_retry_by_the_caller_overtakes_what_was_given_up(
    proxy: Proxy, memory: Memory, session: Session
) -> None:
    proxy.break_next("late", 10_000, _SCRIPT)
    with pytest.raises(StoreUnavailable), short_deadlines(memory):
        await session.append(user_message("x"), id="turn-1")
    proxy.heal()
    await session.append(user_message("x"), id="turn-1")
    more = await append_more(session)
    await proxy.deliver()
    assert await read(session) == ["first", "x", *more]


async def test_an_old_policy_does_not_come_back(proxy: Proxy, session: Session) -> None:
    proxy.break_next("late", 1, _SCRIPT)
    await session.set_policy(Policy(keep_whole=True))
    await session.set_policy(Policy())
    await proxy.deliver()
    assert (await session.info()).policy == Policy()


async def test_an_old_value_of_a_record_does_not_come_back(proxy: Proxy, memory: Memory) -> None:
    record = memory.record("r")
    await record.write(Change(sets={b"n": b"0"}))
    proxy.break_next("late", 2, _SCRIPT)
    await record.write(Change(sets={b"n": b"1"}))
    await record.write(Change(sets={b"n": b"2"}))
    assert all(b"OVERTAKEN" in reply for reply in await proxy.deliver())
    assert await record.get(b"n") == [b"2"]


async def test_a_write_that_was_given_up_overwrites_no_later_one(proxy: Proxy, memory: Memory) -> None:
    record = memory.record("r")
    await record.write(Change(sets={b"n": b"0"}))
    proxy.break_next("late", 10_000, _SCRIPT)
    with pytest.raises(StoreUnavailable), short_deadlines(memory):
        await record.write(Change(sets={b"n": b"1"}))
    proxy.heal()
    await record.write(Change(sets={b"n": b"2"}))
    await proxy.deliver()
    assert await record.get(b"n") == [b"2"]


async def test_a_late_write_with_conditions_is_not_made_again(proxy: Proxy, memory: Memory) -> None:
    """Its condition holds again when it arrives, after more writes than the record remembers."""
    record = memory.record("r")
    once = Change(absent=[b"n"], sets={b"n": b"1"})
    proxy.break_next("reset", 2, _SCRIPT, then="late")
    await record.write(once)
    for number in range(_MORE):
        await record.write(Change(absent=[b"x"], sets={b"m": b"%d" % number}))
    await record.write(Change(drops=[b"n"]))
    await proxy.deliver()
    assert await record.get(b"n") == [None]


async def test_a_late_drop_spares_members_that_came_since(proxy: Proxy, memory: Memory) -> None:
    record = memory.record("r")
    await record.write(Change(adds=[b"a1", b"b"]))
    proxy.break_next("late", 1, _SCRIPT)
    assert await record.drop(b"a") == 1
    await record.write(Change(adds=[b"a2"]))
    await proxy.deliver()
    assert [found.member for found in (await record.page(b"a")).found] == [b"a2"]

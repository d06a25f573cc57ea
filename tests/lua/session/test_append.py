"""append.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import EXPIRES_MS, NOW_MS, Scripts, counters, element

STAMP = b"\xcf" + NOW_MS.to_bytes(8, "big")


async def test_the_first_append_creates_the_whole_session(lua: Scripts) -> None:
    reply = await lua.append("a", "b", sets={"param:x": "1"}, nonce="00ff")
    assert reply == [counters(2, 10), 1, 2, 1, 0]
    stored = await lua.read_namespace()
    assert set(stored) == {lua.key(name) for name in ("messages", "state", "active", "fences")}
    assert stored[lua.key("messages")] == ([element("a") + STAMP, element("b") + STAMP], EXPIRES_MS)
    assert stored[lua.key("state")][1] == EXPIRES_MS
    assert await lua.queue("active") == {b"s": NOW_MS}
    fields = await lua.fields()
    assert {name: fields[name] for name in fields if not name.startswith(b"ids_")} == {
        b"epoch": b"1-00ff",
        b"counters": counters(2, 10),
        b"param:x": b"1",
    }
    assert all(len(value) <= 64 for value in fields.values())


async def test_the_next_append_continues_the_seqs(lua: Scripts) -> None:
    await lua.append("a", "b")
    assert await lua.append("c", token=b"token..2", nonce="cd", tokens=5) == counters(3, 15)
    fields = await lua.fields()
    assert (fields[b"counters"], fields[b"epoch"]) == (counters(3, 15), b"1-ab")


async def test_an_append_without_messages_changes_the_state_only(lua: Scripts) -> None:
    assert await lua.append(sets={"plan": "p"}, tokens=0) == [counters(0, 0), 1, 0, 1, 0]
    assert await lua.raw.exists(lua.key("messages")) == 0
    assert (await lua.fields())[b"plan"] == b"p"
    assert await lua.append(sets={"param:x": "1"}, drops=["plan"], tokens=0, token=b"token..2") == counters(0, 0)
    fields = await lua.fields()
    assert b"plan" not in fields
    assert fields[b"param:x"] == b"1"
    before = await lua.read_namespace()
    assert await lua.append(sets={"plan": "p"}, tokens=0) == [counters(0, 0), 1, 0, 1, 1]
    assert await lua.read_namespace() == before
    assert await lua.append("a", token=b"token..3") == counters(1, 10)
    assert await lua.raw.pexpiretime(lua.key("messages")) == await lua.raw.pexpiretime(lua.key("state")) == EXPIRES_MS


async def test_large_sums_of_tokens_stay_exact(lua: Scripts) -> None:
    await lua.append("a", tokens=2**32 - 1)
    await lua.set_counters(tokens=10**15 + 1)
    assert await lua.append("b", token=b"token..2", tokens=2**32 - 1) == counters(2, 10**15 + 2**32)


async def test_existing_params_do_not_count_again(lua: Scripts) -> None:
    await lua.append("a", sets={"param:x": "1", "param:y": "2"})
    await lua.append("b", token=b"token..2", sets={"param:x": "3", "param:y": "4"}, params_limit=2)
    assert (await lua.fields())[b"param:x"] == b"3"


@pytest.mark.parametrize(("length", "marked"), [(4, False), (5, False), (6, True)])
async def test_a_window_over_the_threshold_is_overdue(lua: Scripts, length: int, marked: bool) -> None:
    await lua.append(*["m"] * length)
    assert (await lua.queue("overdue") == {b"s": NOW_MS}) is marked
    assert ((await lua.fields()).get(b"queued") == b"overdue") is marked


async def test_a_queued_session_keeps_its_place(lua: Scripts) -> None:
    await lua.append(*["m"] * 6)
    await lua.append("m", token=b"token..2", now_ms=NOW_MS + 5000)
    assert await lua.queue("overdue") == {b"s": NOW_MS}
    for queue in ("leased", "dead"):
        await lua.raw.hset(lua.key("state"), "queued", queue)
        await lua.raw.zrem(lua.key("overdue"), "s")
        await lua.append("m", token=queue.encode().ljust(8))
        assert await lua.queue("overdue") == {}


async def test_an_append_takes_a_session_off_the_eviction_queue(lua: Scripts) -> None:
    await lua.append("a")
    await lua.set_counters(evicting="idle")
    await lua.raw.zadd(lua.key("evictions"), {"s": 1, "other": 2})
    assert await lua.append("b", token=b"token..2") == counters(2, 20)
    assert await lua.queue("evictions") == {b"other": 2}
    assert (await lua.fields())[b"counters"] == counters(2, 20)


async def test_a_new_session_is_not_shadowed_by_an_expired_one(lua: Scripts) -> None:
    queues = ("overdue", "leased", "dead", "evictions")
    for queue in queues:
        await lua.raw.zadd(lua.key(queue), {"s": 1, "other": 2})
    await lua.append("a")
    assert [await lua.queue(queue) for queue in queues] == [{b"other": 2}] * 4
    assert b"queued" not in await lua.fields()


async def test_an_epoch_is_used_once_though_the_counter_is_rolled_back(lua: Scripts) -> None:
    epochs = []
    for nonce in ("01", "02", "03"):
        await lua.append("a", nonce=nonce)
        epochs.append((await lua.fields())[b"epoch"])
        await lua.raw.delete(lua.key("state"), lua.key("messages"), lua.key("fences"))
    assert epochs == [b"1-01", b"1-02", b"1-03"]


async def test_a_thousand_messages_and_their_fields_are_one_append(lua: Scripts) -> None:
    sets = {f"param:{number}": "x" for number in range(1000)}
    reply = await lua.append(*["m"] * 1000, sets=sets, params_limit=1000, window_limit=1000)
    assert reply[1:3] == [1, 1000]
    assert len(await lua.fields()) > 1000


async def test_too_many_tokens_make_a_session_overdue_but_never_for_its_recent_messages(lua: Scripts) -> None:
    limits: dict[str, Any] = {"token_limit": 25, "recent_limit": 3, "threshold": 100}
    for number in range(3):
        await lua.append("m", token=b"token..%d" % number, tokens=10, **limits)
    assert await lua.queue("overdue") == {}
    await lua.append("m", token=b"token..9", tokens=0, **limits)
    assert await lua.queue("overdue") == {b"s": NOW_MS}

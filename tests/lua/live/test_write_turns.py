"""write_turns.lua, raw."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
from support.live_scripts import GENERATION, HOLDER, LEASE_MS, LINE, create_running, heard, log_of, write
from support.raw_scripts import EXPIRES_MS, NOW_MS, Scripts

from redismem.protocol import scripts

A = b'{"type":"text","delta":"a"}\n'
B = b'{"type":"text","delta":"b"}\n'
END = len(LINE)


async def test_bytes_go_to_the_end_of_the_log_and_extend_the_lease(lua: Scripts) -> None:
    await create_running(lua)
    await lua.raw.hset(lua.key("state"), "doubt", HOLDER)
    assert await write(lua, END, A) == b"%d" % (END + len(A))
    assert await log_of(lua) == LINE + A
    assert await lua.queue("turns") == {b"s": NOW_MS + 1 + LEASE_MS}
    assert b"doubt" not in await lua.fields()
    assert await lua.raw.pexpiretime(lua.key("live")) == EXPIRES_MS


@pytest.mark.parametrize("times", [2, 3])
async def test_a_resent_write_appends_only_what_is_missing(lua: Scripts, times: int) -> None:
    await create_running(lua)
    for _ in range(times):
        assert await write(lua, END, A) == b"%d" % (END + len(A))
    assert await write(lua, END, A + B) == b"%d" % (END + len(A + B))
    assert await log_of(lua) == LINE + A + B


async def test_a_late_copy_of_an_older_write_changes_nothing(lua: Scripts) -> None:
    await create_running(lua)
    await write(lua, END, A)
    await write(lua, END + len(A), B)
    assert await write(lua, END, A) == b"differs"
    assert await log_of(lua) == LINE + A + B


@pytest.mark.parametrize("data", [B, B + B])
async def test_other_bytes_at_the_offset_are_refused(lua: Scripts, data: bytes) -> None:
    await create_running(lua)
    await write(lua, END, A)
    assert await write(lua, END, data) == b"differs"
    assert await log_of(lua) == LINE + A


async def test_a_log_that_lost_its_end_says_how_much_it_has(lua: Scripts) -> None:
    await create_running(lua)
    assert await write(lua, END + 10, A) == b"%d" % END
    assert await log_of(lua) == LINE
    assert await lua.queue("turns") == {b"s": NOW_MS + 1 + LEASE_MS}


@pytest.mark.parametrize("log", [None, LINE, LINE + A, B + B, LINE + A + B + B])
async def test_at_offset_0_the_whole_log_is_replaced(lua: Scripts, log: bytes | None) -> None:
    await create_running(lua)
    await (lua.raw.delete(lua.key("live")) if log is None else lua.raw.set(lua.key("live"), log))
    assert await write(lua, 0, LINE + A + B) == b"%d" % len(LINE + A + B)
    assert await log_of(lua) == LINE + A + B
    assert await lua.raw.pexpiretime(lua.key("live")) == EXPIRES_MS


async def test_no_bytes_extend_the_lease_and_the_life_of_the_log(lua: Scripts) -> None:
    await create_running(lua)
    await lua.raw.pexpireat(lua.key("state"), EXPIRES_MS + 7_000)
    assert await write(lua, END, b"") == b"%d" % END
    assert await lua.raw.pexpiretime(lua.key("live")) == EXPIRES_MS + 7_000
    assert await lua.queue("turns") == {b"s": NOW_MS + 1 + LEASE_MS}


async def test_a_stop_that_waits_is_told_with_every_reply(lua: Scripts) -> None:
    await create_running(lua)
    await lua.raw.hset(lua.key("state"), "stop", "user left")
    assert await write(lua, END, A) == b"%d user left" % (END + len(A))
    assert await write(lua, END, B) == b"differs user left"


@pytest.mark.parametrize(
    "turn", [f"d {GENERATION} {HOLDER} 00112233445566 1", f"r 6-aaaaaaaa {HOLDER} 00112233445566 1", "r", "", None]
)
async def test_a_turn_that_is_not_the_writers_is_lost(lua: Scripts, turn: str | None) -> None:
    await create_running(lua)
    await (lua.raw.hdel(lua.key("state"), "turn") if turn is None else lua.raw.hset(lua.key("state"), "turn", turn))
    await lua.raw.hset(lua.key("state"), "stop", "late")
    before = await lua.read_namespace()
    assert await write(lua, END, A) == b"lost"
    assert await write(lua, END, A, holder="cccccccc") == b"lost"
    assert await lua.read_namespace() == before


async def test_many_turns_are_written_at_once_each_for_itself(lua: Scripts) -> None:
    ids = ("a", "b", "c", "d")
    for session_id in ids:
        await create_running(lua, session_id)
    await lua.raw.delete(lua.key("live", "b"))
    await lua.raw.rpush(lua.key("live", "b"), "a foreign key")
    await lua.raw.delete(lua.key("state", "c"))
    await lua.raw.set(lua.key("state", "c"), "a foreign key")
    script = scripts.load("write_turns")
    keys = [lua.key(name, session_id) for session_id in ids for name in script.keys]
    tail = [part for session_id in ids for part in (session_id, GENERATION, HOLDER, END, A)]
    await lua.raw.script_load(script.source)
    reply = await lua.raw.evalsha(script.sha.decode(), len(keys), *keys, NOW_MS, LEASE_MS, *tail)
    assert reply == [b"%d" % (END + len(A)), b"lost", b"lost", b"%d" % (END + len(A))]
    assert [await log_of(lua, session_id) for session_id in ("a", "d")] == [LINE + A] * 2


async def test_listeners_are_told_the_offset_and_only_new_bytes(lua: Scripts, server_lua: Scripts) -> None:
    lua = server_lua
    await create_running(lua)

    async def act() -> None:
        await write(lua, END, A)
        await write(lua, END, A)
        await write(lua, END, A + B)
        await write(lua, 0, B)

    at = END + len(A)
    assert await heard(lua, lua.key("live"), act()) == [
        f"{GENERATION} {END}\n".encode() + A,
        f"{GENERATION} {at}\n".encode() + B,
        f"{GENERATION} 0\n".encode() + B,
    ]


async def test_a_full_redis_refuses_before_anything_is_written(server_lua: Scripts) -> None:
    lua = server_lua
    await create_running(lua)
    await lua.raw.hset(lua.key("state"), "doubt", HOLDER)
    before = await lua.read_namespace()
    await lua.raw.config_set("maxmemory", 1)
    try:
        for offset, data in ((END, A), (END, b""), (0, B), (END + 9, A)):
            with pytest.raises(redis.OutOfMemoryError):
                await write(lua, offset, data)
    finally:
        await lua.raw.config_set("maxmemory", 0)
    assert await lua.read_namespace() == before


@pytest.fixture
async def restricted(server_lua: Scripts, redis_server: Any) -> AsyncIterator[Scripts]:
    """The scripts as a user that may use no channel, and whose rights a test takes away."""
    admin = server_lua.raw
    await admin.execute_command("ACL", "SETUSER", "restricted", "on", "nopass", "allkeys", "+@all", "resetchannels")
    async with redis.asyncio.Redis(port=redis_server.port, username="restricted", password="x") as client:
        server_lua.raw = client
        yield server_lua
    server_lua.raw = admin
    await admin.execute_command("ACL", "DELUSER", "restricted")


async def test_a_refused_channel_does_not_stop_the_write(restricted: Scripts) -> None:
    lua = restricted
    await create_running(lua)
    assert await write(lua, END, A) == b"%d" % (END + len(A))
    assert await log_of(lua) == LINE + A
    assert await lua.queue("turns") == {b"s": NOW_MS + 1 + LEASE_MS}


@pytest.mark.parametrize("command", ["strlen", "setrange"])
async def test_a_user_that_lacks_a_right_is_told_so_and_not_that_the_turn_is_lost(
    restricted: Scripts, command: str
) -> None:
    lua = restricted
    await create_running(lua)
    before = await lua.read_namespace()
    await lua.raw.execute_command("ACL", "SETUSER", "restricted", f"-{command}")
    with pytest.raises(redis.RedisError, match=r"(?i)can't run this command|no permissions"):
        await write(lua, END, A)
    assert await lua.read_namespace() == before

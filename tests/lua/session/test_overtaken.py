"""append.lua, raw: a resent append overtakes all earlier sendings of its process."""

from __future__ import annotations

import pytest
import redis
from support.raw_scripts import SENDING, Scripts, counters, resending


def first(number: int, process: bytes = b"sender") -> bytes:
    """Return a first sending."""
    return process + number.to_bytes(6)


async def test_an_overtaken_append_writes_nothing(lua: Scripts) -> None:
    await lua.append("a", fresh=1)
    await lua.append("b", token=b"token..2", fresh=2, sending=resending(300))
    before = await lua.read_namespace()
    for fresh in range(4):
        for sending in (SENDING, first(299), resending(299)):
            with pytest.raises(redis.ResponseError, match="OVERTAKEN sending"):
                await lua.append("b", token=b"token..2", fresh=fresh, sending=sending)
    assert await lua.read_namespace() == before
    for sending in (first(301), first(1 << 46), first(1, b"nother"), b"\0" * 6 + first(1)[6:]):
        await lua.append("c", fresh=1, sending=sending)
    assert await lua.counters() == await lua.counters() | {"message_count": 6}


async def test_a_session_without_resent_appends_has_no_field(lua: Scripts) -> None:
    for number in range(3):
        await lua.append("a", fresh=1, sending=first(3 - number))
    assert b"resent" not in await lua.fields()


async def test_the_last_resent_append_of_each_of_sixteen_processes_is_noted(lua: Scripts) -> None:
    names = [b"proc%02d" % number for number in range(18)]
    for number, name in enumerate((*names, names[5]), 1):
        await lua.append("a", token=b"%08d" % number, fresh=2, sending=resending(number, name))
    noted = (await lua.fields())[b"resent"]
    newest = [(19, names[5]), *((number, names[number - 1]) for number in range(18, 2, -1) if number != 6)]
    assert noted == b"".join(resending(*entry) for entry in newest)


async def test_a_process_is_found_at_its_own_place_only(lua: Scripts) -> None:
    """The name of one process occurs across two parts of the field."""
    await lua.append("a", fresh=2, sending=resending(0x414141414141, b"AAAAAA"))
    across = b"A" + resending(0x414141414141)[6:11]
    assert await lua.append("b", token=b"token..2", fresh=1, sending=first(1, across)) == counters(2, 20)
    assert await lua.append("c", token=b"token..3", fresh=2, sending=resending(1, across)) == counters(3, 30)
    with pytest.raises(redis.ResponseError, match="OVERTAKEN sending"):
        await lua.append("d", fresh=1, sending=first(0, across))

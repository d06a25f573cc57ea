"""append.lua, raw: ids that other processes push out of the ring are kept for a minute, by their process."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import NOW_MS, Scripts, counters, resending

LIMITS: dict[str, Any] = {"window_limit": 10**6, "threshold": 10**6, "fresh": 1, "tokens": 0}
MINUTE_MS = 60_000


async def append(lua: Scripts, process: bytes, number: int, size: int = 1, **changed: Any) -> Any:
    own = process + number.to_bytes(2)
    return await lua.append(*["m"] * size, token=b"%1b%06d" % (process, number), own=own, **LIMITS | changed)


async def resend(lua: Scripts, process: bytes, number: int) -> list[Any] | None:
    """Return first and last seq, created and duplicate of a resent append; None if it is not known."""
    reply = await append(lua, process, number, fresh=2, sending=resending(number, process * 6))
    return None if isinstance(reply, bytes) else reply[1:]


async def older_fields(lua: Scripts) -> set[bytes]:
    return {name for name in await lua.fields() if name.startswith(b"ids:") or name == b"others"}


@pytest.mark.parametrize("others_count", [1, 7, 16, 17, 21, 60, 333])
async def test_an_append_is_known_however_many_others_came_since(lua: Scripts, others_count: int) -> None:
    for number, size in enumerate((3, 1, 200, 2)):
        await append(lua, b"A", number, size)
    for number in range(others_count):
        await append(lua, b"BC"[number % 2 : number % 2 + 1], number)
    total = 206 + others_count
    for number, seqs in enumerate(((1, 3), (4, 4), (5, 204), (205, 206))):
        assert await resend(lua, b"A", number) == [*seqs, int(number == 0), 0]
    assert await append(lua, b"A", 9) == counters(total + 1, 0)


async def test_twelve_appends_of_a_process_are_known(lua: Scripts) -> None:
    for number in range(60):
        await append(lua, b"A", number)
        await append(lua, b"B", number)
        if number >= 11:
            first_seq = 2 * (number - 11) + 1
            assert await resend(lua, b"A", number - 11) == [first_seq, first_seq, int(number == 11), 0]


async def test_a_process_alone_keeps_no_more_than_the_ring(lua: Scripts) -> None:
    for number in range(60):
        await append(lua, b"A", number)
    assert not await older_fields(lua)
    assert await resend(lua, b"A", 30) is None


async def test_ids_that_are_a_minute_old_go(lua: Scripts) -> None:
    for number in range(30):
        await append(lua, b"AB"[number % 2 : number % 2 + 1], number)
    assert await older_fields(lua) == {b"others", b"ids:65", b"ids:66"}
    for minutes in (2, 4):
        for number in range(20):
            await append(lua, b"A", number, now_ms=NOW_MS + minutes * MINUTE_MS)
    assert await older_fields(lua) <= {b"others", b"ids:65"}
    assert len((await lua.fields()).get(b"ids:65", b"")) <= 5 * 24, "those of one turn"


async def test_the_fields_are_bounded(lua: Scripts) -> None:
    for number in range(256 * 3):
        await append(lua, bytes([number % 256]), number)
    fields = await lua.fields()
    assert len(await older_fields(lua)) == 25
    assert len(fields[b"others"]) == 39 + 24
    for number in range(200):
        await append(lua, b"AB"[number % 2 : number % 2 + 1], number)
    fields = await lua.fields()
    assert len(fields[b"ids:65"]) == len(fields[b"ids:66"]) == 24 * 24

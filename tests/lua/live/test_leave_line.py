"""leave_line.lua, raw."""

from __future__ import annotations

import pytest
from support.live_scripts import HOLDER, TURN, create_running
from support.raw_scripts import Scripts


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (b"bbbbbbbb 5", None),
        (b"aaaaaaaa 4,bbbbbbbb 5,cccccccc 6", b"aaaaaaaa 4,cccccccc 6"),
        (b"aaaaaaaa 4", b"aaaaaaaa 4"),
        (None, None),
    ],
)
async def test_the_place_is_given_up_and_the_others_stay(lua: Scripts, line: bytes | None, left: bytes | None) -> None:
    if line is not None:
        await lua.raw.set(lua.key("waiters"), line, px=10_000)
    assert await lua.run("leave_line", ticket="bbbbbbbb") == b""
    assert await lua.raw.get(lua.key("waiters")) == left
    assert left is None or 0 < await lua.raw.pttl(lua.key("waiters")) <= 10_000


@pytest.mark.parametrize(
    ("turn", "ticket", "found"),
    [(TURN, HOLDER, TURN), (TURN, "cccccccc", b""), (TURN.replace(b"r ", b"d "), HOLDER, b"")],
)
async def test_a_turn_that_has_begun_meanwhile_is_told(lua: Scripts, turn: bytes, ticket: str, found: bytes) -> None:
    await create_running(lua, turn=turn)
    assert await lua.run("leave_line", ticket=ticket) == found

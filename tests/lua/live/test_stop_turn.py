"""stop_turn.lua, raw."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError
from support.live_scripts import GENERATION, NAME, TURN, create_running, heard
from support.raw_scripts import Scripts

ANY = {"generation": "-", "name": "-", "reason": "user"}


@pytest.mark.parametrize(
    "meant", [{}, {"generation": GENERATION}, {"name": NAME}, {"generation": GENERATION, "name": NAME}]
)
async def test_the_running_turn_is_asked_to_stop(lua: Scripts, meant: dict[str, str]) -> None:
    await create_running(lua)
    assert await lua.run("stop_turn", **ANY | meant) == 1
    assert (await lua.fields())[b"stop"] == b"user"


async def test_the_first_reason_counts(lua: Scripts) -> None:
    await create_running(lua)
    for reason in ("first", "second"):
        assert await lua.run("stop_turn", **ANY | {"reason": reason}) == 1
    assert (await lua.fields())[b"stop"] == b"first"


@pytest.mark.parametrize(
    ("meant", "turn"),
    [
        ({"generation": "6-aaaaaaaa"}, TURN),
        ({"name": "ffffffffffffff"}, TURN),
        ({"generation": GENERATION, "name": "ffffffffffffff"}, TURN),
        ({}, TURN.replace(b"r ", b"d ")),
        ({}, b"unreadable"),
    ],
)
async def test_another_turn_is_left_alone(lua: Scripts, meant: dict[str, str], turn: bytes) -> None:
    await create_running(lua, turn=turn)
    before = await lua.read_namespace()
    assert await lua.run("stop_turn", **ANY | meant) == 0
    assert await lua.run("stop_turn", session_id="other", **ANY) == 0
    assert await lua.read_namespace() == before


async def test_another_owners_turn_is_left_alone(lua: Scripts) -> None:
    await create_running(lua)
    with pytest.raises(ResponseError, match=r"^OWNER other"):
        await lua.run("stop_turn", **ANY, owner="1 mine")
    assert b"stop" not in await lua.fields()


async def test_the_channel_of_stops_is_told(server_lua: Scripts) -> None:
    lua = server_lua
    await create_running(lua)
    told = await heard(lua, lua.key("stops"), lua.run("stop_turn", **ANY))
    assert told == [f"{GENERATION} user".encode()]

"""pause.lua, raw."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.raw_scripts import Scripts

from redismem.protocol import scripts
from redismem.protocol.keys import Keys

KEEP_MS = 60_000


class Paused:
    """Runs the script in its own namespace."""

    def __init__(self, lua: Scripts, namespace: str) -> None:
        self.raw = lua.raw
        self.key = Keys(namespace, 1).providers

    async def note(self, seen: str, value: str, provider: str = "openai") -> Any:
        script = scripts.load("pause")
        await self.raw.script_load(script.source)
        return await self.raw.evalsha(script.sha.decode(), 1, self.key, provider, seen, value, KEEP_MS)

    async def noted(self) -> dict[bytes, bytes]:
        return dict(await self.raw.hgetall(self.key))


@pytest.fixture
def paused(lua: Scripts, namespace: str) -> Paused:
    return Paused(lua, namespace)


async def test_a_pause_is_replaced_if_it_is_the_one_seen(paused: Paused) -> None:
    assert await paused.note("", "one") == b"one"
    assert await paused.noted() == {b"openai": b"one"}
    assert 0 < await paused.raw.pttl(paused.key) <= KEEP_MS
    assert await paused.note("one", "two") == b"two"
    assert await paused.note("", "x", "gemini") == b"x", "another provider is another matter"
    assert await paused.note("two", "") == b""
    assert await paused.noted() == {b"gemini": b"x"}
    assert await paused.note("x", "", "gemini") == b""
    assert await paused.raw.exists(paused.key) == 0


@pytest.mark.parametrize("seen", ["", "one", "two and more"])
@pytest.mark.parametrize("value", ["", "three"])
async def test_a_writer_that_saw_another_pause_changes_nothing_and_gets_the_stored_one(
    paused: Paused, seen: str, value: str
) -> None:
    await paused.note("", "two")
    assert await paused.note(seen, value) == b"two"
    assert await paused.noted() == {b"openai": b"two"}


async def test_a_resent_call_returns_the_same_value(paused: Paused) -> None:
    for seen, value in (("", "one"), ("one", "two"), ("two", "")):
        assert await paused.note(seen, value) == value.encode()
        assert await paused.note(seen, value) == value.encode()


async def test_a_key_of_a_foreign_type_is_refused_and_left(paused: Paused) -> None:
    await paused.raw.set(paused.key, "x")
    with pytest.raises(ResponseError, match=r"^WRONGTYPE"):
        await paused.note("", "one")
    assert await paused.raw.get(paused.key) == b"x"

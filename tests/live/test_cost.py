"""The cost of a turn for Redis: the calls and the bytes that docs/turns.md tells."""

from __future__ import annotations

from typing import Any

import pytest
from support.checks import until
from support.conversations import user_message

from redismem import Memory, Settings
from redismem.live.live import live_of


async def test_a_turn_is_two_round_trips_and_what_is_said_at_once_one_more(
    redis_server: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(live_lease_s=3600)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        session, keys, transport = (
            memory.session("user-42"),
            memory.store.keys.session("user-42"),
            memory.store.transport,
        )
        async with session.turn(user_message("warm"), id="t0"):
            await until(lambda: not live_of(memory.store).writer.beats_often, 30)  # stops are pushed from now on
        run, calls = transport.run, list[Any]()

        async def count(*arguments: Any, **more: Any) -> Any:
            calls.append(arguments)
            return await run(*arguments, **more)

        monkeypatch.setattr(transport, "run", count)
        async with session.turn(user_message("a"), id="t1"):
            pass
        assert len(calls) == 2
        calls.clear()
        async with session.turn(user_message("b"), id="t2") as turn:
            for _ in range(100):
                await turn.write("word ")
        assert len(calls) == 3
        monkeypatch.undo()
        read = ("STRLEN", keys.live), ("STRLEN", keys.turned)
        async with session.turn(user_message("c"), id="t3") as turn:
            (begun_bytes,), (turned_bytes,) = [await transport.run([command], 5) for command in read]
            await turn.write("word ")
        ((ended_bytes,), (turned_after_bytes,)) = [await transport.run([command], 5) for command in read]
        assert begun_bytes <= 46
        assert turned_after_bytes - turned_bytes == 16
        assert ended_bytes - begun_bytes < 200

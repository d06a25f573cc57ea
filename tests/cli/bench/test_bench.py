"""`redismem bench`: figures of the user's own Redis, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from support.commands import TransportLayer
from support.redis_server import RedisServer

from redismem.cli.bench.measuring import ROUNDS
from redismem.cli.bench.offering import open_loop
from redismem.cli.bench.sizing import size
from redismem.errors import StoreUnavailable
from redismem.protocol.server_errors import ServerError

QUICK = ["--seconds", "0.1", "--concurrency", "8", "--json"]


def test_each_figure_is_measured_and_nothing_is_left(command: Any, redis_server: RedisServer) -> None:
    ran = command("bench", "--url", redis_server.url, *QUICK)
    found = json.loads(ran.out)
    assert ran.code == 0
    for side in ("redismem", "by_hand"):
        assert all(found[side][name] > 0 for name in ("turns_per_s", "client_us", "server_us"))
    assert found["redismem"]["round_trips"] == 2
    assert found["ratio"] > 0
    assert [len(row["failures"]) for row in found["open_loop"]] == [0, 0]
    assert all(row["p50_ms"] <= row["p99_ms"] <= row["p99.9_ms"] for row in found["open_loop"])
    assert found["session_bytes"] > 2 * 160
    assert found["sizing"]["processes"] >= 1
    assert redis_server.say("KEYS", "*bench-*") == []


def test_the_table_shows_them_too(command: Any, redis_server: RedisServer) -> None:
    ran = command("bench", "--url", redis_server.url, *QUICK[:-1])
    assert ran.code == 0
    for shown in ("redismem", "redis-py by hand", "of the turns per second by hand", "p99.9", "masters"):
        assert shown in ran.out
    assert "open loop: 80%" in ran.err


def test_without_a_server_nothing_is_compared(command: Any) -> None:
    found = json.loads(command("bench", *QUICK).out)
    assert found["by_hand"] is None
    assert found["not_compared"] == "the embedded store has no server"
    assert found["redismem"]["server_us"] is None
    assert found["sizing"]["masters"] is None


def test_failed_turns_are_counted_and_end_with_1(command: Any, redis_server: RedisServer, intercept: Any) -> None:
    class Failing(TransportLayer):
        """Refuses the appends of the open loops. Each closed loop before them asks for INFO twice."""

        infos_count = 0

        async def run(self, commands: Any, *args: Any, **options: Any) -> list[Any]:
            Failing.infos_count += commands[0][0] == "INFO"
            if Failing.infos_count == 4 * ROUNDS and commands[0][0] == "EVALSHA":
                raise ServerError("OOM", "OOM command not allowed")
            answers: list[Any] = await super().run(commands, *args, **options)
            return answers

    intercept(Failing)
    ran = command("bench", "--url", redis_server.url, *QUICK)
    found = json.loads(ran.out)
    assert ran.code == 1
    assert all(row["failures"]["StoreUnavailable"] > 0 for row in found["open_loop"])
    assert found["open_loop"][0]["p50_ms"] is None


async def test_a_stall_shows_in_all_turns_that_it_delays() -> None:
    async def turn(number: int) -> None:
        if number == 0:
            time.sleep(0.2)  # noqa: ASYNC251 (blocks the event loop, as a stall does)
        if number == 1:
            raise StoreUnavailable("away")
        await asyncio.sleep(0)

    offered = await open_loop(turn, 500, 0.4)
    late = [took for took in offered.took_ms if took > 50]
    assert len(late) > 20
    assert offered.failures == {"StoreUnavailable": 1}


def test_the_sums_are_those_of_the_page() -> None:
    sized = size(100_000, 10_000_000, client_us=39.7, server_us=43.4, session_bytes=20_167)
    assert sized.processes == 6
    assert sized.redis_cores == pytest.approx(4.34)
    assert sized.data_gb == pytest.approx(201.67)
    assert sized.masters == 9
    assert size(1, 1, 40, None, 100).masters is None

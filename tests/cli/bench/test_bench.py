"""`redismem bench`: figures of the user's own Redis, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import TransportLayer
from support.redis_server import RedisServer
from support.transcripts import CHAT, write

from redismem import Settings
from redismem.cli.bench import measuring
from redismem.cli.bench.measuring import ROUNDS
from redismem.cli.bench.offering import open_loop
from redismem.cli.bench.sizing import Costs, Load, size
from redismem.errors import StoreUnavailable
from redismem.protocol.server_errors import ServerError

QUICK = ["--seconds", "0.1", "--concurrency", "8", "--json"]


def test_each_figure_is_measured_and_nothing_is_left(
    command: Any, redis_server: RedisServer, intercept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended sessions are removed all the time, so that a long run takes no more memory than a short one."""
    counts = []

    class Counting(TransportLayer):
        """Counts the sessions before and after each closed loop."""

        async def run(self, commands: Any, *args: Any, **options: Any) -> list[Any]:
            if commands[0] == ("INFO", "cpu"):
                counts.append(len(redis_server.say("KEYS", "*bench-*:messages:*")))
                kept = (
                    []
                    if len(counts) % 2 == 0
                    else [redis_server.say("PTTL", key) for key in redis_server.say("KEYS", "*bench-*")]
                )
                assert all(0 < each < 700_000 for each in kept), "after a kill, what a loop has left expires"
            answers: list[Any] = await super().run(commands, *args, **options)
            return answers

    intercept(Counting)
    monkeypatch.setattr(measuring, "_MOST_BYTES", 1)
    ran = command("bench", "--url", redis_server.url, *QUICK)
    found = json.loads(ran.out)
    assert ran.code == 0
    for side in ("redismem", "by_hand"):
        assert all(found[side][name] > 0 for name in ("turns_per_s", "client_us", "server_us"))
    assert found["redismem"]["round_trips"] == 2
    assert found["ratio"] > 0
    assert [len(row["failures"]) for row in found["open_loop"]] == [0, 0]
    assert all(row["p50_ms"] <= row["p99_ms"] <= row["p99.9_ms"] for row in found["open_loop"])
    assert all(0 < row["core"] <= 1.5 for row in found["open_loop"])
    assert found["session_bytes"] > 2 * 160
    assert found["sizing"]["processes"] >= 1
    assert max(counts) < 3 * 2 * 8, "of both sides: the current sessions, and some that are being removed"
    assert redis_server.say("KEYS", "*bench-*") == []


def test_the_table_shows_those_of_own_conversations(command: Any, redis_server: RedisServer, tmp_path: Path) -> None:
    long = [{"role": role, "content": role} for _ in range(15) for role in ("user", "assistant")]
    file = write(tmp_path / "a.jsonl", {"messages": CHAT}, {"messages": [CHAT[-1], *long]})
    ran = command("bench", file, "--url", redis_server.url, *QUICK[:-1])
    assert ran.code == 0
    for shown in (
        "2 conversations of 2: 2",
        "redismem",
        "redis-py by hand",
        "of the turns per second by hand",
        "p99.9",
    ):
        assert shown in ran.out
    assert "open loop: 80%" in ran.err
    assert redis_server.say("KEYS", "*bench-*") == []


def test_what_others_need_is_left_to_them(command: Any, redis_server: RedisServer, tmp_path: Path) -> None:
    """A Redis that evicts would drop keys of others, and one that does not would refuse their writes."""
    used = int(redis_server.say("INFO", "memory").split(b"used_memory:")[1].split()[0])
    file = write(tmp_path / "a.jsonl", *({"messages": CHAT} for _ in range(2_000)))
    redis_server.say("CONFIG", "SET", "maxmemory", used + 1_000_000)
    try:
        for words in (["bench"], ["tune", file, "--conversations", "2000"]):
            ran = command(*words, "--url", redis_server.url)
            assert (ran.code, "of its maxmemory. Lower --con" in ran.error_line) == (2, True), ran.err
    finally:
        redis_server.say("CONFIG", "SET", "maxmemory", 0)
    assert redis_server.say("KEYS", "*bench-*") == redis_server.say("KEYS", "*redismem-tune*") == []


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
            Failing.infos_count += commands[0] == ("INFO", "cpu")
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
    assert 500 < offered.possible_per_s() < math.inf, "a stall is no CPU"
    assert (await open_loop(turn, 0.001, 0.001)).possible_per_s() == math.inf


def test_the_sums_are_those_of_the_page() -> None:
    load, costs = Load(100_000, 10_000_000, 30), Costs(39.7, 43.4, 2, 639, 603)
    sized = size(load, costs, Settings())
    assert (sized.processes, sized.workers, sized.masters) == (6, 309, 12)
    assert sized.redis_cores == pytest.approx(4.3 + 3.4, abs=0.1)
    assert sized.session_bytes == pytest.approx(14_619 + 5_306, abs=1)
    assert sized.data_gb == pytest.approx(199, abs=1)
    assert size(load, replace(costs, server_us=None), Settings()).masters is None
    whole = size(load, costs, Settings(strategy="none"))
    assert (whole.workers, whole.session_bytes, whole.masters) == (0, 30 * 639, 8)
    short = size(replace(load, session_messages=4), costs, Settings())
    assert (short.workers, short.session_bytes) == (0, 4 * 639)

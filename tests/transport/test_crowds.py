"""More calls at once than a process can serve in time: those that fit are served, the others are refused."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import Context, Memory, Overloaded, Receipt, Settings

PATIENT = Settings(**PATIENCE, fallback_after_s=60)
MOST = 4_096 + 8_192  # pending, and in line


async def test_calls_that_fit_are_served_and_others_refused(redis_server: RedisServer, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=PATIENT) as memory:
        handles = [memory.session(f"s-{number % 500}") for number in range(MOST + 3_000)]
        answers = await asyncio.gather(*(handle.read() for handle in handles), return_exceptions=True)
        counts = Counter(type(answer) for answer in answers)
        assert counts == {Context: MOST, Overloaded: 3_000}
        refused = next(answer for answer in answers if isinstance(answer, Overloaded))
        assert refused.reason == "TooManyCalls"
        assert "calls of this process are already waiting for it" in refused.text
        assert memory.health().state == "closed", "a server that answered all that it was asked is there"
        assert await asyncio.gather(*(handle.exists() for handle in handles[:100])) == [False] * 100, (
            "there is room again"
        )


async def test_too_many_calls_are_no_outage(redis_server: RedisServer, namespace: str) -> None:
    """The fallback does not accept the excess either, because Redis is up."""
    async with Memory.connect(redis_server.url, namespace=namespace, settings=PATIENT, fallback=True) as memory:
        # Few enough per session that none of them waits for its turn.
        handles = [memory.session(f"s-{number % 2_000}") for number in range(MOST + 1_000)]
        message = {"role": "user", "content": "x"}
        answers = await asyncio.gather(*(handle.append(message) for handle in handles), return_exceptions=True)
        counts = Counter(type(answer) for answer in answers)
        assert counts == {Receipt: MOST, Overloaded: 1_000}
        assert not any(answer.degraded for answer in answers if isinstance(answer, Receipt))
        health = memory.health()
        assert (health.state, health.backlog_message_count) == ("closed", 0)


async def test_a_busy_process_reads_replies_before_it_times_calls_out(
    redis_server: RedisServer, namespace: str
) -> None:
    """The replies were there in time: this process did not read them."""
    settings = Settings(deadline_s=120, reply_timeout_s=30)
    sent: list[int] = []
    loop = asyncio.get_running_loop()
    async with Memory.connect(
        redis_server.url, namespace=namespace, settings=settings, on_event=lambda event: sent.append(event.sent_count)
    ) as memory:
        await memory.session("s").append({"role": "user", "content": "x" * 200_000})
        sent.clear()
        calls = [asyncio.create_task(memory.session("s").read()) for _ in range(40)]
        for _ in range(3):
            await asyncio.sleep(0)  # they are written
        clock = loop.time
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: clock() + 50)  # as if the whole process had stalled
            await asyncio.gather(*calls)
    assert sent == [1] * 40

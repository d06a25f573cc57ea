"""The clock of Redis jumps an hour ahead or back, while sessions are written and summarised."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checks import contents, user
from support.shifted import HOUR_S, ShiftedClock, ShiftedServer
from support.writers import Echo

from redismem import Memory, Settings
from redismem.inspection.check import check
from redismem.workers.eviction import Eviction
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker

# Long timeouts: a session that expires within the jump would be gone for a good reason.
SETTINGS = Settings(
    shards=2, idle_timeout_s=24 * HOUR_S, threshold=10, recent_limit=6, lease_s=30, deadline_s=60, reply_timeout_s=20
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShiftedServer]:
    server = ShiftedServer(tmp_path / "redis")
    (tmp_path / "clock").mkdir()
    server.clock = ShiftedClock(tmp_path / "clock")
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S])
async def test_a_clock_that_jumps_repeats_nothing_and_loses_no_session(server: ShiftedServer, shift_s: int) -> None:
    names = [f"s-{number}" for number in range(8)]
    async with Memory.connect(server.url, settings=SETTINGS) as memory:
        for name in names:
            await memory.session(name).append(*(user(at) for at in range(11)), id="first")
        before_ms = await memory.server_time_ms()
        slow, quick = Echo(), Echo()
        slow.hanging = "canary"
        late = Worker(memory.store, slow, concurrency=1)
        holding = asyncio.create_task(late.drain())
        await slow.started.wait()
        server.clock.shift(shift_s)
        assert abs(await memory.server_time_ms() - before_ms - shift_s * 1_000) < HOUR_S * 500
        for name in names:
            again = await memory.session(name).append(*(user(at) for at in range(11)), id="first")
            assert (again.duplicate, again.last_seq) == (True, 11)
            assert (await memory.session(name).append(user(11), id="second")).last_seq == 12
        await Worker(memory.store, quick).drain()
        slow.gate.set()
        await holding
        # An hour ahead, the lease is over and another worker finishes the job; an hour back, it is still held.
        assert late.outcomes[SummaryOutcome.FENCED] == (1 if shift_s > 0 else 0)
        await Eviction(memory.store).enforce()
        assert {each.session_id for each in (await memory.sessions()).sessions} == set(names)
        server.clock.shift(0)
        # A session that is due by the wrong clock is due by the right one, now or later.
        await memory.session("s-new").append(user("new"))
        assert {each.session_id for each in (await memory.sessions()).sessions} == {*names, "s-new"}
        for name in names:
            session = memory.session(name)
            found = await session.messages(include_originals=True)
            assert [message.content for message in found] == [user(at)["content"] for at in range(12)]
            assert len(await contents(session)) in (6, 7, 12)
            covered = [(summary.first_seq, summary.last_seq) for summary in (await session.read()).summaries]
            assert len(covered) == len(set(covered)) <= 1
        assert [violation async for violation in check(memory.store)] == []

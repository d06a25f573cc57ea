"""A tool call and its result are covered together, and an open call is waited for."""

from __future__ import annotations

from support.clock import T0, Clock
from support.worked import FEW, Worked, ranges, seqs
from support.writers import answered, called, said

from redismem.workers.outcomes import SummaryOutcome


async def test_a_tool_group_stays_whole(worked: Worked) -> None:
    memory, _, worker = worked
    session = memory.session("a")
    told = [said(1), said(2), said(3), called("x", "y"), answered("x"), answered("y"), *map(said, range(7, 12))]
    await session.append(*told)
    assert await worker.drain() == 1
    assert await ranges(session) == [(1, 3)]
    assert await seqs(session) == list(range(4, 12)), "eight: the group of three began before the newest six"


async def test_a_group_longer_than_a_summary_should_cover(worked: Worked) -> None:
    memory, _, worker = worked
    session = memory.session("a")
    await session.append(called("x"), *map(said, range(2, 601)), answered("x"), *map(said, range(602, 611)))
    assert await worker.drain() == 1
    assert await ranges(session) == [(1, 604)]


async def test_an_open_tool_call_is_kept_until_it_counts_as_dead(worked: Worked, clock: Clock) -> None:
    memory, _, worker = worked
    session = memory.session("a")
    patience_ms = int(FEW.open_call_s * 1000)
    await clock.at(T0, session.append(said(1), said(2), called("x"), *map(said, range(4, 14))))
    assert await clock.at(T0, worker.drain()) == 1
    assert await ranges(session) == [(1, 2)], "up to the call"
    assert await clock.at(T0 + 5_000, worker.drain()) == 0
    assert await seqs(session) == list(range(3, 14)), "the call is verbatim, and what follows it"
    assert worker.outcomes[SummaryOutcome.WAITING] == 2
    assert await clock.at(T0 + 5_001, worker.drain()) == 0
    assert worker.outcomes[SummaryOutcome.WAITING] == 2, "it is not looked at all the time"

    assert await clock.at(T0 + patience_ms, worker.drain()) == 1
    assert await ranges(session) == [(1, 2), (3, 7)]
    assert await seqs(session) == list(range(8, 14))
    assert (await session.info()).queued is None


async def test_a_call_that_is_answered_is_not_waited_for_to_the_end(worked: Worked, clock: Clock) -> None:
    memory, _, worker = worked
    session = memory.session("a")
    await clock.at(T0, session.append(called("x"), *map(said, range(2, 12))))
    assert await clock.at(T0, worker.drain()) == 0
    await clock.at(T0 + 100, session.append(answered("x"), *map(said, range(13, 20))))
    assert await clock.at(T0 + 5_000, worker.drain()) == 1
    assert await ranges(session) == [(1, 13)]


async def test_a_window_of_one_group_waits_for_what_follows_it(worked: Worked, clock: Clock) -> None:
    memory, echo, worker = worked
    session = memory.session("a")
    await clock.at(T0, session.append(called("x"), *map(said, range(2, 12)), answered("x")))
    for after_ms in (0, 5_000, 10_000):
        assert await clock.at(T0 + after_ms, worker.drain()) == 0
    assert echo.seen == []
    assert (await session.info()).queued == "overdue"
    await clock.at(T0, session.append(*map(said, range(13, 20))))
    assert await clock.at(T0 + 15_000, worker.drain()) == 1
    assert await ranges(session) == [(1, 13)]

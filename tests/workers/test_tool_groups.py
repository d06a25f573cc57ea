"""A tool call and its result are covered together, and an open call is waited for."""

from __future__ import annotations

from support.clock import T0, Clock
from support.worked import FEW, WorkerParts, ranges, seqs
from support.writers import call_message, chat_message, result_message

from redismem.workers.outcomes import SummaryOutcome


async def test_a_tool_group_stays_whole(worker_parts: WorkerParts) -> None:
    memory, _, worker = worker_parts
    session = memory.session("a")
    told = [
        chat_message(1),
        chat_message(2),
        chat_message(3),
        call_message("x", "y"),
        result_message("x"),
        result_message("y"),
        *map(chat_message, range(7, 12)),
    ]
    await session.append(*told)
    assert await worker.drain() == 1
    assert await ranges(session) == [(1, 3)]
    assert await seqs(session) == list(range(4, 12)), "eight: the group of three began before the newest six"


async def test_a_group_longer_than_a_summary_should_cover(worker_parts: WorkerParts) -> None:
    memory, _, worker = worker_parts
    session = memory.session("a")
    await session.append(
        call_message("x"), *map(chat_message, range(2, 601)), result_message("x"), *map(chat_message, range(602, 611))
    )
    assert await worker.drain() == 1
    assert await ranges(session) == [(1, 604)]


async def test_an_open_tool_call_is_kept_until_it_counts_as_dead(worker_parts: WorkerParts, clock: Clock) -> None:
    memory, _, worker = worker_parts
    session = memory.session("a")
    patience_ms = int(FEW.open_call_s * 1000)
    await clock.run_at(
        T0, session.append(chat_message(1), chat_message(2), call_message("x"), *map(chat_message, range(4, 14)))
    )
    assert await clock.run_at(T0, worker.drain()) == 1
    assert await ranges(session) == [(1, 2)], "up to the call"
    assert await clock.run_at(T0 + 5_000, worker.drain()) == 0
    assert await seqs(session) == list(range(3, 14)), "the call is verbatim, and what follows it"
    assert worker.outcomes[SummaryOutcome.WAITING] == 2
    assert await clock.run_at(T0 + 5_001, worker.drain()) == 0
    assert worker.outcomes[SummaryOutcome.WAITING] == 2, "it is not looked at all the time"

    assert await clock.run_at(T0 + patience_ms, worker.drain()) == 1
    assert await ranges(session) == [(1, 2), (3, 7)]
    assert await seqs(session) == list(range(8, 14))
    assert (await session.info()).queued is None


async def test_a_call_that_is_answered_is_not_waited_for_to_the_end(worker_parts: WorkerParts, clock: Clock) -> None:
    memory, _, worker = worker_parts
    session = memory.session("a")
    await clock.run_at(T0, session.append(call_message("x"), *map(chat_message, range(2, 12))))
    assert await clock.run_at(T0, worker.drain()) == 0
    await clock.run_at(T0 + 100, session.append(result_message("x"), *map(chat_message, range(13, 20))))
    assert await clock.run_at(T0 + 5_000, worker.drain()) == 1
    assert await ranges(session) == [(1, 13)]


async def test_a_window_of_one_group_waits_for_what_follows_it(worker_parts: WorkerParts, clock: Clock) -> None:
    memory, echo, worker = worker_parts
    session = memory.session("a")
    await clock.run_at(T0, session.append(call_message("x"), *map(chat_message, range(2, 12)), result_message("x")))
    for after_ms in (0, 5_000, 10_000):
        assert await clock.run_at(T0 + after_ms, worker.drain()) == 0
    assert echo.seen == []
    assert (await session.info()).queued == "overdue"
    await clock.run_at(T0, session.append(*map(chat_message, range(13, 20))))
    assert await clock.run_at(T0 + 15_000, worker.drain()) == 1
    assert await ranges(session) == [(1, 13)]

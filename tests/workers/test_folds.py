"""Too many summaries become one."""

from __future__ import annotations

from support.clock import T0
from support.stores import Store
from support.worked import WorkerParts, open_with, ranges
from support.writers import Echo, fill

from redismem.context.results import Summary
from redismem.workers.planning import plan
from redismem.workers.summaries import Worker


async def test_too_many_summaries_become_one(worker_parts: WorkerParts) -> None:
    memory, echo, worker = worker_parts
    session = memory.session("a")
    texts, ids = [], []
    await fill(session, 6)
    for _ in range(5):
        await fill(session, 5)
        await worker.drain()
        newest = (await session.read()).summaries[-1]
        texts.append(newest.text)
        ids.append(newest.id)
    context = await session.read()
    folded, *others = context.summaries
    assert [(summary.first_seq, summary.last_seq) for summary in context.summaries] == [(1, 15), (16, 20), (21, 25)]
    assert [summary.id for summary in others] == ids[3:]
    assert folded.message_ids == tuple(ids[:3])
    assert folded.text == "\n\n".join(texts[:3])
    assert (folded.start_ms, folded.end_ms) == (T0, T0)
    assert echo.seen[-1] == [], "a fold covers no messages"
    assert (await session.info()).summaries_count == 3
    assert (await session.info()).queued is None


async def test_summaries_do_not_pile_up_under_constant_overflow(worker_parts: WorkerParts) -> None:
    memory, _, _ = worker_parts
    session = memory.session("a")
    await fill(session, 11)
    context = await session.read()
    for count, folds in ((5, False), (8, False), (9, True)):
        context.summaries = [Summary(f"{at}", "text", at, at, 0, 0, "echo", 1, 0, ()) for at in range(count)]
        todo = plan(context, T0, memory.settings)
        assert (bool(todo.folded), bool(todo.covered)) == (folds, not folds)


async def test_a_fold_covers_no_messages_before_their_time(worker_parts: WorkerParts) -> None:
    memory, _, _ = worker_parts
    session = memory.session("a")
    await fill(session, 9)
    context = await session.read()
    old = [Summary(str(at), "text", at, at, T0, T0, "m", 1, T0, ()) for at in range(5)]
    context.summaries = old
    todo = plan(context, T0, memory.settings)
    assert (todo.covered, todo.folded, todo.wait_ms) == ((), old[:3], 0)


async def test_one_summary_at_most(store: Store, namespace: str) -> None:
    async with open_with(store, namespace, summaries_limit=1) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        for _ in range(4):
            await fill(session, 10)
            await worker.drain()
        assert await ranges(session) == [(1, 34)]

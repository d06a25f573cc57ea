"""Calls of an overloaded process: some are refused at once, before they are sent, and retries have a budget."""

from __future__ import annotations

import pytest
from support.overloads import overloads
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import Memory, Overloaded, Settings, StoreUnavailable
from redismem.events import Event
from redismem.metrics.prometheus import Metrics
from redismem.protocol.server_errors import ConnectionLost
from redismem.store.overload import RETRIES_COUNT, RETRIES_SHARE, RetryBudget
from redismem.store.retries import Retries
from redismem.transport.admission import Reason

QUESTION, ANSWER = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}


@pytest.mark.parametrize("fallback", [False, True])
async def test_new_work_is_refused_unsent_and_work_that_was_paid_for_and_removals_go_on(
    redis_server: RedisServer, namespace: str, fallback: bool
) -> None:
    metrics, events = Metrics(), list[Event]()

    def on_event(event: Event) -> None:
        metrics.event(event)
        events.append(event)

    settings = Settings(**PATIENCE, fallback=fallback, fallback_after_s=60)
    with overloads() as overload:
        async with Memory.connect(
            redis_server.url, namespace=namespace, settings=settings, on_event=on_event
        ) as memory:
            begun, cleared, refused = memory.session("begun"), memory.session("cleared"), memory.session("refused")
            await begun.append_and_read(QUESTION)
            await cleared.append(QUESTION)
            others = await overload.begin(memory)
            with pytest.raises(Overloaded, match="more calls to make than it can make in time") as error:
                await refused.append_and_read(QUESTION)
            assert isinstance(error.value, StoreUnavailable)
            assert (error.value.reason, error.value.may_be_done) == (Reason.BUSY, False)
            assert 1 <= error.value.retry_after_s <= 3
            assert (events[-1].op, events[-1].outcome, events[-1].sent_count) == ("append_and_read", "Overloaded", 0)
            with pytest.raises(Overloaded):
                await refused.read()
            assert (await begun.append(ANSWER)).last_seq == 2
            assert await cleared.clear()
            await others
            await overload.end(memory)
            assert len((await begun.read()).messages) == 2
            assert not await refused.exists(), "it was never sent"
            health = memory.health()
            assert (health.state, health.backlog_message_count) == ("closed", 0)
            scraped = (await metrics.collect(memory)).decode()
            assert 'redismem_refused_total{reason="BusyProcess"}' in scraped
            assert 'outcome="Overloaded"' in scraped


def late(*, sent: bool, crowded: bool = True) -> ConnectionLost:
    return ConnectionLost("TimeoutError", sent=sent, crowded=crowded)


def test_retries_of_late_calls_have_a_budget_that_other_calls_earn() -> None:
    budget = RetryBudget()

    def retry(failure: ConnectionLost, budget: RetryBudget | None = budget) -> float:
        retries = Retries("s", 60, 60, budget=budget)
        retries.note(failure)
        return retries.pause_s(failure)

    for _ in range(RETRIES_COUNT):
        retry(late(sent=True))
    with pytest.raises(StoreUnavailable, match="used up its retries") as sent:
        retry(late(sent=True))
    assert (type(sent.value), sent.value.may_be_done) == (StoreUnavailable, True), "as ambiguous as ever"
    with pytest.raises(Overloaded, match="was not sent") as unsent:
        retry(late(sent=False))
    assert (unsent.value.reason, unsent.value.may_be_done) == (Reason.LATE, False)
    retry(late(sent=True, crowded=False))  # an outage: the breaker ends it
    retry(late(sent=True), None)  # a clear
    for _ in range(int(1 / RETRIES_SHARE) + 1):
        budget.earn()
    retry(late(sent=True))
    with pytest.raises(StoreUnavailable):
        retry(late(sent=True))

"""When a lane refuses calls: once its queue has stood, and not in a burst."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.overloads import refusing

from redismem.events import NEW_WORK, PAID_FOR
from redismem.transport import admission
from redismem.transport.admission import CALM_S, FEW_COUNT, LATE_S, MOST_TAKEN_S, STANDING_S, TAKEN_S, Admission, Reason

PLACE = "host:1"
SLOW_S = 0.25


@dataclass
class Sent:
    begun_at: float


@dataclass
class Process:
    """A lane in an event loop whose time a test sets."""

    now: float = 100.0
    sent: deque[Sent] = field(default_factory=deque)
    answered_at: float = 100.0
    soon: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(PLACE, 4 * SLOW_S)

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call(self, count: int = FEW_COUNT) -> None:
        """Send calls, as the lane does."""
        self.sent.extend(Sent(self.now) for _ in range(count))
        if not self.admission.is_marked:
            loop: Any = self
            self.admission.mark(loop, self)

    def work(self, seconds: float, *, is_answered: bool = True) -> None:
        """End an iteration that took this long."""
        self.now += seconds
        if is_answered:
            self.sent.clear()
            self.answered_at = self.now
        for call in self.soon:
            call()
        self.soon.clear()

    def refusal(self, patience: int = NEW_WORK, place: str = PLACE) -> str:
        return self.admission.reason_to_refuse(place, patience) if self.admission in admission.behind else ""


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(admission, "monotonic", made.time)
    monkeypatch.setattr(admission, "behind", set())
    return made


def stand(process: Process) -> None:
    """Let the queue stand for longer than a burst."""
    for _ in range(4):
        process.call()
        process.work(LATE_S + 0.01)
    process.call()


def test_a_queue_that_stands_refuses_new_work_first_and_takes_some_in_each_iteration(process: Process) -> None:
    stand(process)
    assert process.refusal() == "", "each iteration takes some"
    process.now += TAKEN_S + 0.01
    assert process.refusal() == Reason.BUSY
    assert process.refusal(PAID_FOR) == ""
    process.now += TAKEN_S * PAID_FOR
    assert process.refusal(PAID_FOR) == Reason.BUSY
    process.work(0)
    process.call()
    assert process.refusal() == ""


def test_short_iterations_take_more_new_work_until_one_is_long(process: Process) -> None:
    stand(process)
    process.now += 2 * TAKEN_S
    assert process.refusal() == Reason.BUSY
    for _ in range(5):
        process.work(0)
        process.call()
        process.now += 2 * TAKEN_S
        process.refusal()
    assert process.refusal() == ""
    process.now += MOST_TAKEN_S
    assert process.refusal() == Reason.BUSY
    process.work(0)
    stand(process)
    process.now += 2 * TAKEN_S
    assert process.refusal() == Reason.BUSY


@pytest.mark.parametrize("took_s", [[STANDING_S * 0.9], [LATE_S + 0.01, 0.01, LATE_S + 0.01, 0.01, LATE_S + 0.01]])
def test_a_burst_is_served(process: Process, took_s: list[float]) -> None:
    for seconds in took_s:
        process.call(1_000)
        process.now += seconds
        assert process.refusal() == ""
        process.work(0)
    process.call()
    assert process.refusal() == ""


@pytest.mark.parametrize("pause_s", [2 * STANDING_S, 2.0])
def test_a_pause_of_the_process_is_no_queue_that_stands(process: Process, pause_s: float) -> None:
    for seconds in (0.01, pause_s, 2 * TAKEN_S):
        process.call(64)
        process.now += seconds
        assert process.refusal() == ""
        process.work(0)


def test_few_calls_are_never_refused_however_busy_the_process(process: Process) -> None:
    stand(process)
    process.work(0)
    process.call(FEW_COUNT - 1)
    process.now += 10 * LATE_S
    assert process.refusal() == ""


def test_an_overload_that_is_over_refuses_nothing_and_costs_nothing(process: Process) -> None:
    stand(process)
    process.now += 2 * TAKEN_S
    assert process.refusal()
    for _ in range(3):
        process.work(0.01)
        process.call()
        process.now += CALM_S / 2
        process.work(0)  # a late iteration: the overload is over, but not forgotten
    process.work(0)
    process.now += CALM_S
    for _ in range(2):
        process.call()
        process.work(0.01)
    assert not admission.behind
    stand(process)
    process.work(0)
    process.now += 5
    process.refusal()
    assert not admission.behind, "nor does one that ended with its last call"


def test_a_server_that_answers_late_is_a_reason_to_refuse_and_one_that_is_silent_is_none(
    process: Process,
) -> None:
    process.call(100)
    for _ in range(20):  # quick iterations; one call is answered in each
        process.call(6)
        process.work(0.05, is_answered=False)
        process.sent.popleft()
        process.answered_at = process.now
    assert process.refusal() == Reason.SLOW
    assert process.refusal(place="host:2") == "", "another node"
    assert process.refusal(PAID_FOR) == ""
    process.now += SLOW_S
    process.work(0, is_answered=False)
    process.call(1)
    assert process.refusal() == "", "it is silent: the breaker decides"


async def test_only_calls_of_the_same_event_loop_are_refused() -> None:
    with refusing(asyncio.get_running_loop()):
        assert admission.reason_to_refuse(PLACE, NEW_WORK) == Reason.BUSY
        assert await asyncio.to_thread(admission.reason_to_refuse, PLACE, NEW_WORK) == "", "a blocking caller"
    other = asyncio.new_event_loop()
    with closing(other), refusing(other):
        assert admission.reason_to_refuse(PLACE, NEW_WORK) == ""

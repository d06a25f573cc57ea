"""Enter the history of one item in any order: at every moment the item equals the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import fakeredis
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.clock import BEGIN, ProjectClock

from project_model import decisions_machine, tasks_machine
from project_model.machine import ProjectMachine
from project_model.model import Fields, Modelled, adds, both, legal, sets
from redismem import InvalidTransition
from redismem.blocking import memory as blocking

MANY = settings(deadline=None, suppress_health_check=list(HealthCheck))
_numbers = itertools.count(1)
_ms = ProjectMachine.ms

TASKS = st.sampled_from(
    [*tasks_machine.VERBS, "block a review", "block a key", "unblock", "until 3", "until 40", "until"]
)
DECISIONS = st.sampled_from([*decisions_machine.STEPS, "supersede", "until 3", "until 40", "until"])
STEPS_LIMIT = 6


@pytest.fixture(scope="module", params=["real", "embedded"])
def memory(request: pytest.FixtureRequest) -> Iterator[blocking.Memory]:
    client: Any = fakeredis.FakeRedis()
    if request.param == "real":
        client = redis.Redis(port=request.getfixturevalue("redis_server").port)
    with blocking.Memory.connect(client=client, namespace="project-orders", clock=ProjectClock()) as memory:
        yield memory
    client.close()


class History:
    """An item and its model."""

    def __init__(self, project: Any, letter: str) -> None:
        self.store = project.tasks if letter == "t" else project.decisions
        self.ways = tasks_machine.WAYS if letter == "t" else decisions_machine.WAYS
        follows = tasks_machine.follows if letter == "t" else decisions_machine.follows
        self.id = self.store.create("a", at=BEGIN).id
        self.model = Modelled(self.id, follows)
        status = "backlog" if letter == "t" else "proposed"
        fresh = sets(status=status, said_until=None, blocked_by=[])
        self.model.happen(_ms(BEGIN), _ms(BEGIN), fresh)

    def enter(self, step: str, at: datetime) -> bool:
        """Enter a step, and return True if it was accepted. It is refused if the model has no such path."""
        verb, _, rest = step.partition(" ")
        at_ms = _ms(at)
        effect, arguments, fields = sets(), [rest] if verb == "block" else [], dict[str, Any]()
        then = self.model.as_of(at_ms)
        assert then is not None
        if verb == "until":
            until = BEGIN + timedelta(seconds=int(rest)) if rest else None
            verb, fields = "update", {"valid_until": until}
            effect = sets(said_until=_plain(until))
        elif verb == "block":
            effect = both(sets(status="blocked"), adds("blocked_by", rest))
        elif verb == "unblock":
            effect = sets(blocked_by=[])
        elif verb == "supersede":
            effect, fields = sets(status="superseded"), {"title": "b"}
        else:
            effect = sets(status=(tasks_machine.VERBS | decisions_machine.STEPS)[verb])
        is_taken = legal(self.ways, self.model.with_one_more(at_ms, effect)[1])
        is_taken = is_taken and (verb != "unblock" or then["status"] == "blocked")
        if is_taken:
            getattr(self.store, verb)(self.id, *arguments, at=at, **fields)
            self.model.happen(at_ms, at_ms, effect)
        else:
            with pytest.raises(InvalidTransition):
                getattr(self.store, verb)(self.id, *arguments, at=at, **fields)
        return is_taken

    def read(self, at: datetime | None) -> Fields:
        """Return the item's fields now or at a moment, after comparing them with the model."""
        record = self.store.get(self.id, at=at)
        then = [happening for happening in self.model.happenings if at is None or happening.at_ms <= _ms(at)]
        fields, passed = self.model.replayed(then)
        names = ["status", "valid_until", *(["blocked_by", "completed_at"] if self.id.startswith("t-") else [])]
        seen = {name: _plain(getattr(record, name)) for name in names}
        assert seen == {name: fields[name] for name in names}
        assert [(change.status, _ms(change.at)) for change in record.history] == passed
        return seen


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return _ms(value)
    return list(value) if isinstance(value, tuple) else value


def enter_all(history: History, steps: list[tuple[int, str]]) -> None:
    """Enter each step as soon as it is accepted, and leave out the steps that never are."""
    left = steps
    while left:
        refused = [
            (second, step) for second, step in left if not history.enter(step, BEGIN + timedelta(seconds=second))
        ]
        if refused == left:
            return
        left = refused


@pytest.mark.parametrize("letter", ["t", "d"])
@given(data=st.data())
@MANY
def test_the_order_of_entry_makes_no_difference(memory: blocking.Memory, letter: str, data: st.DataObject) -> None:
    memory.store.clock.now = BEGIN  # type: ignore[union-attr]
    project = memory.project(f"p{next(_numbers)}")
    ordered, late = History(project, letter), History(project, letter)
    memory.store.clock.tick(60)  # type: ignore[union-attr]
    drawn = data.draw(st.lists(TASKS if letter == "t" else DECISIONS, min_size=2, max_size=STEPS_LIMIT))
    steps = [
        (second, step) for second, step in enumerate(drawn, 1) if ordered.enter(step, BEGIN + timedelta(seconds=second))
    ]
    enter_all(late, data.draw(st.permutations(steps)))
    moments = [None, *(BEGIN + timedelta(seconds=second) for second in range(len(drawn) + 1))]
    for moment in moments:
        in_order, otherwise = ordered.read(moment), late.read(moment)
        assert in_order == otherwise or len(late.model.happenings) <= len(steps)

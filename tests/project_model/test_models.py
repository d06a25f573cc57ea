"""Random histories on real Redis and on the embedded store: each answer equals the model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RULE_MARKER, run_state_machine_as_test

from project_model.decisions_machine import DecisionsMachine
from project_model.entities_machine import EntitiesMachine
from project_model.machine import ProjectMachine
from project_model.tasks_machine import TasksMachine

MACHINES: list[type[ProjectMachine]] = [DecisionsMachine, TasksMachine, EntitiesMachine]
MANY = settings(
    stateful_step_count=14,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


@pytest.fixture(params=["real", "embedded"])
def connect(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a function that opens a store for each history."""
    if request.param == "real":
        port = request.getfixturevalue("redis_server").port
        yield staticmethod(lambda: redis.Redis(port=port))
    else:
        yield staticmethod(lambda: fakeredis.FakeRedis(server=fakeredis.FakeServer()))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_any_history_equals_the_model(machine: type[ProjectMachine], connect: Any) -> None:
    run_state_machine_as_test(type(machine.__name__, (machine,), {"connect": connect}), settings=MANY)


def test_there_are_rules_enough() -> None:
    rules = [name for machine in MACHINES for name, each in vars(machine).items() if hasattr(each, RULE_MARKER)]
    assert len(rules) >= 20

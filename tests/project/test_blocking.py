"""The blocking project: the same methods, parameters and explanations as the async one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from redismem.project import blocking, conversations, decisions, entities, project, tasks

PAIRS: list[tuple[Any, Any]] = [
    (blocking.Decisions, decisions.Decisions),
    (blocking.Tasks, tasks.Tasks),
    (blocking.Entities, entities.Entities),
    (blocking.Conversations, conversations.Conversations),
    (blocking.Project, project.Project),
]
# The session of a conversation is `Memory.session` of its session id.
ASYNC_ONLY = {"session", "FILES"}


def surface(kind: Any) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("mine", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_each_method_is_there_with_the_same_parameters(mine: Any, other: Any) -> None:
    ours, theirs = surface(mine), surface(other)
    hidden = {"twin", "kind", "record", "conversations", "decisions", "entities", "tasks"}
    assert ours.keys() - hidden == theirs.keys() - hidden - ASYNC_ONLY
    for name, method in ours.items():
        if inspect.isfunction(method) and name not in ("session_id", "check_tokens"):
            assert inspect.signature(method) == inspect.signature(theirs[name]), name
            assert method.__doc__ == theirs[name].__doc__

"""The blocking project has the methods, parameters and docstrings of the async one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from support.redis_server import RedisServer

import redismem.blocking
from redismem.blocking import project as blocking
from redismem.project import project
from redismem.project.kinds import conversations, decisions, entities, tasks

PAIRS: list[tuple[Any, Any]] = [
    (blocking.Decisions, decisions.Decisions),
    (blocking.Tasks, tasks.Tasks),
    (blocking.Entities, entities.Entities),
    (redismem.blocking.Conversations, conversations.Conversations),
    (redismem.blocking.Project, project.Project),
]
ASYNC_ONLY = {"FILES"}


def surface(kind: Any) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("mine", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_each_method_is_there_with_the_same_parameters(mine: Any, other: Any) -> None:
    ours, theirs = surface(mine), surface(other)
    hidden = {"twin", "kind", "record", "conversations", "decisions", "entities", "tasks"}
    assert ours.keys() - hidden == theirs.keys() - hidden - ASYNC_ONLY
    for name, method in ours.items():
        if inspect.isfunction(method) and name not in ("session", "session_id", "check_tokens"):
            assert inspect.signature(method) == inspect.signature(theirs[name]), name
            assert method.__doc__ == theirs[name].__doc__


def test_a_conversation_has_its_session(redis_server: RedisServer, namespace: str) -> None:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        talks = memory.project("apollo").conversations
        talk = talks.start("talk")
        talks.add(talk.id, {"role": "user", "content": "Hello."})
        assert [message.content for message in talks.session(talk.id).messages()] == ["Hello."]
        assert talks.session(talk.id).id == talks.session_id(talk.id)

"""Fixtures of the tests of events: the events that a hook received, and the memories they come from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.redis_server import RedisServer
from support.watched import CANARY, NAME, Events, Place


@pytest.fixture
def events(namespace: str) -> Iterator[Events]:
    """Collect events, and assert that they hold no text, no value and no readable id."""
    events = Events()
    yield events
    assert events
    for event in events:
        assert CANARY not in repr(event)
        assert NAME not in repr(event)
        assert event.namespace == namespace
        assert event.duration_ms >= 0
        assert type(event.outcome) is str


@pytest.fixture(params=["real", "embedded"])
def server(request: pytest.FixtureRequest) -> RedisServer | None:
    return request.getfixturevalue("redis_server") if request.param == "real" else None


@pytest.fixture(params=["async", "blocking"])
def place(request: pytest.FixtureRequest, server: RedisServer | None, namespace: str) -> Iterator[Place]:
    place = Place(server, namespace, is_async=request.param == "async")
    with place.raw:
        yield place


@pytest.fixture
def async_place(server: RedisServer | None, namespace: str) -> Iterator[Place]:
    place = Place(server, namespace, is_async=True)
    with place.raw:
        yield place

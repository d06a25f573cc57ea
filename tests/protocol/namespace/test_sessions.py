"""Pages of sessions: they are complete and in order, and their cost grows with the page, not with the shards."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from support.redis_server import RedisServer

from redismem.context.info import SessionPage
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.sessions import SessionsReader

T0 = 1_700_000_000_000
_numbers = itertools.count()


class Index:
    """The active index of a namespace on a real server, and counts of the commands and entries that pages read."""

    def __init__(self, client: redis.Redis, shard_count: int) -> None:
        self.client = client
        self.keys = Keys(f"listed-{next(_numbers)}", shard_count)
        self.round_trips: list[tuple[int, int]] = []
        """Commands and entries of each round trip."""

    def fill(self, active_ms: dict[str, int], exempt: frozenset[str] = frozenset()) -> None:
        shards: dict[bytes, dict[str, int]] = {}
        for name, at_ms in active_ms.items():
            shard = self.keys.session(name).shard.active
            shards.setdefault(shard, {})[name] = -at_ms if name in exempt else at_ms
        with self.client.pipeline(transaction=False) as pipeline:
            for shard, scores in shards.items():
                pipeline.zadd(shard, scores)
            pipeline.execute()

    def page(self, limit: int, cursor: str | None = None) -> SessionPage:
        reader = SessionsReader(self.keys, limit, cursor, T0 - 1)
        while (call := reader.next_call()) is not None:
            with self.client.pipeline(transaction=False) as pipeline:
                for command in call.commands:
                    pipeline.execute_command(*command)
                answers = pipeline.execute()
            self.round_trips.append((len(answers), sum(map(len, answers))))
            call.finish(answers)
        return reader.page()

    def pages(self, limit: int) -> list[tuple[int, str]]:
        listed: list[tuple[int, str]] = []
        cursor = None
        while True:
            page = self.page(limit, cursor)
            assert len(page.sessions) <= limit
            listed += [(entry.active_ms, entry.session_id) for entry in page.sessions]
            if (cursor := page.cursor) is None:
                return listed


@pytest.fixture(scope="module")
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=redis_server.port) as client:
        yield client


@given(
    offsets=st.lists(st.integers(0, 5), max_size=60),
    exempt_every=st.integers(1, 4),
    shard_count=st.integers(1, 4),
    limit=st.integers(1, 30),
)
def test_pages_return_each_session_once_and_in_order(
    client: Any, offsets: list[int], exempt_every: int, shard_count: int, limit: int
) -> None:
    index = Index(client, shard_count)
    active_ms = {f"s{number:02}{'é' * (number % 3)}": T0 + offset for number, offset in enumerate(offsets)}
    index.fill(active_ms, frozenset(list(active_ms)[::exempt_every]))
    assert index.pages(limit) == sorted(((at_ms, name) for name, at_ms in active_ms.items()), reverse=True)


@pytest.mark.parametrize("shard_count", [1, 64])
def test_the_entries_read_grow_with_the_page_and_not_with_the_shards(client: Any, shard_count: int) -> None:
    """Reading a whole page from each of 64 shards took 6,464 entries."""
    index = Index(client, shard_count)
    index.fill({f"s{number}": T0 + number for number in range(8_000)})
    page = index.page(100)
    assert [entry.active_ms for entry in page.sessions] == [T0 + 7_999 - number for number in range(100)]
    assert sum(entries for _, entries in index.round_trips) < 800


def test_a_shard_with_all_sessions_of_a_page_is_asked_again(client: Any) -> None:
    index = Index(client, 64)
    names = (name for name in map(str, itertools.count()) if index.keys.shard_of(name) == 7)
    active_ms = {next(names): T0 + number for number in range(300)}
    index.fill(active_ms)
    assert index.pages(100) == sorted(((at_ms, name) for name, at_ms in active_ms.items()), reverse=True)
    assert sum(entries for _, entries in index.round_trips) < 1_500


def test_no_round_trip_is_long(client: Any) -> None:
    """A turn in the same process waits for at most one of them."""
    index = Index(client, 4_096)
    index.fill({f"s{number}": T0 + number for number in range(20_000)})
    assert len(index.page(10_000).sessions) == 10_000
    assert max(commands for commands, _ in index.round_trips) <= 256
    assert max(entries for _, entries in index.round_trips) <= 4_200


@pytest.mark.parametrize(
    "content", [[T0, "s", 10**15], [T0], [-1, "s"], [T0, 7], [T0, "\ud800"], [1 << 60, "s"], ["1", "s"], {"a": 1}, 7]
)
def test_a_forged_cursor_is_refused(content: Any) -> None:
    """The number of entries to skip was once in the cursor, and went into LIMIT of every shard."""
    cursor = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
    with pytest.raises(ValueError, match="cursor"):
        SessionsReader(Keys("n", 64), 5, cursor, T0)


def test_no_cursor_makes_a_page_dearer(client: Any) -> None:
    index = Index(client, 64)
    index.fill({f"s{number}": T0 + number for number in range(8_000)})
    for cursor in itertools.product((0, T0, T0 + 7_999, 1 << 53), ("", "s1", "\U0010ffff")):
        index.round_trips.clear()
        index.page(100, base64.urlsafe_b64encode(json.dumps(cursor).encode()).decode())
        assert sum(entries for _, entries in index.round_trips) < 800, cursor

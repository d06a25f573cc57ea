"""The topology from CLUSTER SLOTS, and redirections; without I/O."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.cluster import key_slot  # type: ignore[attr-defined]

from redismem.protocol.server_errors import ServerError
from redismem.transport.nodes.slots import (
    SLOTS_COUNT,
    Redirection,
    Topology,
    is_down,
    next_cursor,
    parse_redirection,
    slot_of,
    split_cursor,
    split_place,
)
from redismem.transport.resp import server_error


def node(host: bytes | None, port: int) -> list[Any]:
    return [host, port, b"id%d" % port, []]


ANSWER = [
    [8_192, 16_000, node(b"10.0.0.2", 7001), node(b"10.0.0.3", 7002)],
    [0, 8_191, node(b"10.0.0.1", 7000)],
]


def test_unassigned_slots_have_no_owner() -> None:
    topology = Topology.read(ANSWER, "10.0.0.1:7000")
    assert topology.primaries == ("10.0.0.1:7000", "10.0.0.2:7001")
    assert topology.replicas == ("10.0.0.3:7002",)
    owners = [topology.owners[slot] for slot in (0, 8_191, 8_192, 16_000, 16_001, SLOTS_COUNT - 1)]
    assert owners == ["10.0.0.1:7000"] * 2 + ["10.0.0.2:7001"] * 2 + [""] * 2


@pytest.mark.parametrize("host", [b"", None])
def test_a_node_that_does_not_know_its_host_is_where_it_was_asked(host: bytes | None) -> None:
    assert Topology.read([[0, 9, node(host, 7)]], "[::1]:7000").primaries == ("[::1]:7",)


def test_a_node_without_slots_raises() -> None:
    with pytest.raises(ServerError, match="CLUSTERDOWN"):
        Topology.read([], "a:1")


@pytest.mark.parametrize(
    ("text", "down"),
    [
        ("CLUSTERDOWN The cluster is down", True),
        ("CLUSTERDOWN The cluster is down and only accepts read commands", True),
        ("CLUSTERDOWN Hash slot not served", False),
        ("ERR The cluster is down", False),
    ],
)
def test_a_slot_that_no_node_has_is_not_the_whole_cluster(text: str, down: bool) -> None:
    assert is_down(server_error(text)) is down


def test_a_moved_slot_is_known_at_once() -> None:
    topology = Topology.read(ANSWER, "10.0.0.1:7000")
    topology.move(3, "10.0.0.9:1")
    assert topology.owners[2:5] == ["10.0.0.1:7000", "10.0.0.9:1", "10.0.0.1:7000"]
    assert topology.primaries[-1] == "10.0.0.9:1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirection(3999, "127.0.0.1:6381", False)),
        ("ASK 0 redis-1.example:6381", Redirection(0, "redis-1.example:6381", True)),
        ("MOVED 3999 ::1:6381", Redirection(3999, "[::1]:6381", False)),
        ("MOVED 3999 :6381", Redirection(3999, "10.0.0.1:6381", False)),
        ("MOVED 16384 127.0.0.1:6381", None),
        ("MOVED 3999 127.0.0.1", None),
        ("MOVED 3999 127.0.0.1:", None),
        ("MOVED here there:1", None),
        ("MOVED", None),
        ("TRYAGAIN Multiple keys request during rehashing of slot", None),
        ("ERR MOVED 3999 127.0.0.1:6381", None),
    ],
)
def test_a_redirection_is_read(text: str, found: Redirection | None) -> None:
    assert parse_redirection(server_error(text), "10.0.0.1:7000") == found


@given(st.text())
def test_no_text_of_a_refusal_breaks_anything(text: str) -> None:
    for word in ("MOVED", "ASK"):
        found = parse_redirection(ServerError(word, text), "a:1")
        assert found is None or (0 <= found.slot < SLOTS_COUNT and split_place(found.place)[1] >= 0)


@given(st.one_of(st.text(), st.binary(), st.integers()))
def test_a_slot_is_that_of_redis_py(key: bytes | str | int) -> None:
    try:
        content = key if isinstance(key, bytes) else str(key).encode()
    except UnicodeEncodeError:
        return
    assert slot_of(key) == key_slot(content)


@given(st.lists(st.lists(st.integers(1, 1 << 60), max_size=4), min_size=1, max_size=5))
def test_a_cursor_over_all_nodes_meets_each_step_of_each_node(cursors: list[list[int]]) -> None:
    """`cursors` lists each node's cursors, before its final 0."""
    steps = [dict(zip([0, *row], [*row, 0], strict=True)) for row in cursors]
    expected = [(number, at) for number, row in enumerate(cursors) for at in dict.fromkeys([0, *row])]
    if any(len(set(row)) != len(row) for row in cursors):
        return
    met: list[tuple[int, int]] = []
    cursor = 0
    while True:
        number, at = split_cursor(cursor)
        met.append((number, at))
        cursor = next_cursor(number, steps[number][at], len(cursors))
        if cursor == 0:
            break
    assert met == expected

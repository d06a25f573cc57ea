"""A record agrees with a dict and a sorted set of members, whatever is written in whatever order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.redis_server import RedisServer

from redismem import RecordConflict
from redismem.blocking import memory as blocking
from redismem.record import Change, Head, Related

_numbers = itertools.count()
# Few names with common beginnings, so that they meet; all bytes that could end or split one.
NAMES = st.sampled_from([b"a", b"a\x00", b"a:1", b"a:1:", b"a\xff", b"\xff\xff", b"b", b"b:1", b"=", b"*", b"\r\n$1"])
VALUES = st.sampled_from([b"", b"=", b"*", b"1", b"\x00\xff", b"3:a:1;", b"1:a3:b:1;x"])
FIELDS = st.dictionaries(NAMES, VALUES, max_size=4)
SOME = st.lists(NAMES, max_size=3, unique=True)


@dataclass
class Model:
    """A record in plain Python."""

    fields: dict[bytes, bytes] = field(default_factory=dict)
    members: set[bytes] = field(default_factory=set)

    def holds(self, change: Change) -> bool:
        return (
            all(self.fields.get(name) == value for name, value in change.equals.items())
            and not any(name in self.fields for name in change.absent)
            and all(name in self.fields for name in change.present)
        )

    def write(self, change: Change) -> None:
        for name in change.drops:
            self.fields.pop(name, None)
        self.members -= set(change.removes)
        self.fields = {**change.sets_once, **self.fields}
        self.fields |= change.sets
        self.members |= set(change.adds)

    def page(self, prefix: bytes, after: bytes | None, limit: int, *, reverse: bool) -> list[bytes]:
        found = sorted((name for name in self.members if name.startswith(prefix)), reverse=reverse)
        return [name for name in found if after is None or (name < after if reverse else name > after)][:limit]


changes = st.builds(
    Change, equals=FIELDS, absent=SOME, present=SOME, sets=FIELDS, sets_once=FIELDS, drops=SOME, adds=SOME, removes=SOME
)
unconditional = st.builds(Change, sets=FIELDS, sets_once=FIELDS, drops=SOME, adds=SOME, removes=SOME)
pages = st.tuples(st.sampled_from([b"", b"a", b"a:", b"\xff"]), st.none() | NAMES, st.integers(1, 4), st.booleans())
drops = st.tuples(st.just("drop"), st.sampled_from([b"a:", b"\xff", b""]))
steps = st.lists(unconditional | changes | drops, max_size=8)


@pytest.fixture(scope="module", params=["redis", "embedded"])
def memory(request: pytest.FixtureRequest) -> Iterator[blocking.Memory]:
    server: RedisServer | None = request.getfixturevalue("redis_server") if request.param == "redis" else None
    with blocking.Memory.connect("memory://" if server is None else server.url, namespace="record-model") as memory:
        yield memory


@given(steps=steps, page=pages)
def test_a_record_agrees_with_its_model(memory: blocking.Memory, steps: list[Any], page: Any) -> None:
    record, model = memory.record(f"r{next(_numbers)}"), Model()
    for step in steps:
        if isinstance(step, tuple):
            dropped = {name for name in model.members if name.startswith(step[1])}
            assert record.drop(step[1]) == len(dropped)
            model.write(Change(drops=dropped, removes=dropped))
        elif model.holds(step):
            assert record.write(step) is True
            model.write(step)
        else:
            with pytest.raises(RecordConflict):
                record.write(step)
    names = [*dict.fromkeys([*model.fields, b"a", b"b"])]
    assert record.get(*names) == [model.fields.get(name) for name in names]
    prefix, after, limit, reverse = page
    found = record.page(prefix, after=after, limit=limit, reverse=reverse)
    assert [each.member for each in found.found] == model.page(prefix, after, limit, reverse=reverse)
    related = record.page(prefix, named=True, related=Related(b"a", b":")).found
    for each in related:
        assert each.value == model.fields.get(each.member)
        beginning = b"a" + each.member.removeprefix(prefix) + b":"
        assert [name for name, _ in each.related] == model.page(beginning, None, 99, reverse=False)
        head = Head.decode(each.value) if each.value and b";" in each.value else Head()
        assert each.named == {name: model.fields.get(name) for name in head.names}
    existed = record.exists()
    assert (existed, record.clear(), record.exists()) == (existed, existed, False)


@given(st.binary(max_size=30), st.lists(st.binary(max_size=12), max_size=5), st.binary(max_size=20))
def test_a_head_is_decoded_as_it_was_encoded(parent: bytes, names: list[bytes], body: bytes) -> None:
    head = Head(parent, tuple(names), body)
    assert Head.decode(head.encode()) == head

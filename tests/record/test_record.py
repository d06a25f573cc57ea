"""A record as its callers use it, on a real Redis and on the embedded store."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from redismem import InvalidRecord, InvalidSessionId, Memory, RecordConflict, TooLarge
from redismem.protocol.record.reads import Walker
from redismem.record import Change, Head, Record, RecordEntry, Related, Trace

ODD = bytes(range(256))


@pytest.fixture
def record(memory: Memory) -> Record:
    return memory.record("thread\x00{1}\ud800")


def head(number: int, *names: bytes) -> dict[bytes, bytes]:
    """Return the field of a checkpoint, whose parent is the one before."""
    return {b"c/%d" % number: Head(b"c/%d" % (number - 1) if number > 1 else b"", names).encode()}


async def test_a_change_writes_all_of_its_parts_and_returns_any_bytes_unchanged(record: Record) -> None:
    assert not await record.exists()
    assert await record.get(ODD) == [None]
    first = Change(sets={ODD: ODD, b"gone": b"1"}, sets_once={b"once": b"first"}, adds=[ODD, b"m"])
    assert await record.write(first) is True
    second = Change(drops=[b"gone", ODD], sets={ODD: b""}, sets_once={b"once": b"second"}, removes=[b"m"])
    assert await record.write(second) is True
    assert await record.exists()
    assert await record.get(ODD, b"gone", b"once") == [b"", None, b"first"]
    page = await record.page()
    assert ([(each.member, each.value) for each in page.found], page.after) == ([(ODD, b"")], None)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (Change(equals={b"a": b"1", b"b": b"2"}, sets={b"x": b"1"}), b"b"),
        (Change(equals={b"no": b""}, sets={b"x": b"1"}), b"no"),
        (Change(absent=[b"no", b"a"], sets={b"x": b"1"}, adds=[b"x"]), b"a"),
        (Change(present=[b"a", b"no"], drops=[b"a"]), b"no"),
    ],
)
async def test_a_condition_that_does_not_hold_writes_nothing_and_names_record_and_field(
    memory: Memory, record: Record, change: Change, field: bytes
) -> None:
    other = memory.record("other", tag=record.id)
    await record.write(Change(sets={b"a": b"1", b"b": b"secret"}))
    with pytest.raises(RecordConflict) as caught:
        await other.write(Change(sets={b"x": b"1"}), (record, change))
    assert (caught.value.record_id, caught.value.field) == (record.id, field)
    assert "secret" not in str(caught.value)
    assert record.id not in caught.value.text
    assert await record.get(b"a", b"b", b"x") == [b"1", b"secret", None]
    assert not await other.exists()
    assert (await record.page()).found == []


async def test_one_write_changes_all_records_of_a_tag(memory: Memory) -> None:
    app, user = memory.record("app", tag="app"), memory.record("user", tag="app")
    await app.write(Change(sets={b"a": b"1"}), (user, Change(sets={b"u": b"2"}, adds=[b"u"])))
    assert (await app.get(b"a"), await user.get(b"u")) == ([b"1"], [b"2"])
    assert (await memory.records()).records == [RecordEntry("app", "app", None), RecordEntry("user", "app", None)]
    with pytest.raises(InvalidRecord, match="one tag"):
        await app.write(Change(), *[(memory.record(str(number)), Change()) for number in range(9)])
    with pytest.raises(InvalidRecord, match="twice"):
        await app.write(Change(), (app, Change()))


async def test_one_read_returns_a_checkpoint_with_its_blobs_and_writes(record: Record) -> None:
    blobs = {b"b/m/1": b"one", b"b/n/1": b""}
    await record.write(Change(sets={**head(1, *blobs, b"b/none"), **blobs}, adds=[b"c/1", *blobs]))
    await record.write(Change(sets=head(2, b"b/m/1"), adds=[b"c/2"]))
    writes = {b"w/1/m/t": b"1", b"w/1/n/t": b"2", b"w/1x/t": b"3"}
    await record.write(Change(sets_once=writes, adds=writes))
    newest = await record.newest(b"c/", named=True, related=Related(b"w/", b"/"))
    assert newest is not None
    assert (newest.member, newest.named, newest.related) == (b"c/2", {b"b/m/1": b"one"}, [])
    for found in (
        await record.newest(b"c/", before=b"c/2", named=True, related=Related(b"w/", b"/")),
        await record.newest(b"c/", member=b"c/1", named=True, related=Related(b"w/", b"/")),
    ):
        assert found is not None
        assert (found.member, found.named) == (b"c/1", {**blobs, b"b/none": None})
        assert found.related == list(writes.items())[:2]
        assert found.value is not None
        assert Head.decode(found.value) == Head(b"", (*blobs, b"b/none"))
    assert await record.newest(b"c/", before=b"c/1") is None
    assert await record.newest(b"c/", member=b"c/3") is None


async def test_pages_go_forwards_and_backwards_within_a_prefix(record: Record) -> None:
    members = [b"a", b"p", b"p\x00", b"p1", b"p\xff", b"p\xff\xff", b"q"]
    await record.write(Change(sets=dict.fromkeys(members, b"v"), adds=members))
    for reverse, expected in ((False, members[1:6]), (True, members[5:0:-1])):
        read, after = [], None
        while True:
            page = await record.page(b"p", after=after, limit=2, reverse=reverse)
            read += [each.member for each in page.found]
            if (after := page.after) is None:
                break
        assert read == expected
    assert [each.member for each in (await record.page(b"\xff")).found] == []
    assert [each.member for each in (await record.page(b"p\xff")).found] == members[4:6]


async def test_a_page_ends_early_when_it_is_large(record: Record) -> None:
    large = b"x" * (5 * 1024 * 1024)
    for member in (b"1", b"2", b"3"):
        await record.write(Change(sets={member: large}, adds=[member]))
    page = await record.page()
    assert ([each.member for each in page.found], page.after) == ([b"1", b"2"], b"2")
    assert [each.member for each in (await record.page(after=page.after)).found] == [b"3"]


async def test_a_walk_collects_the_writes_of_a_channel_up_to_its_snapshot(record: Record) -> None:
    for number in range(1, 7):
        blobs = {b"b/m/2": b"seed"} if number == 2 else {}
        writes = {b"w/%d/t%b" % (number, channel): b"%b=%d" % (channel, number) for channel in (b"m", b"n")}
        names = (b"b/m/%d" % number, b"b/n/%d" % number)
        change = Change(sets={**head(number, *names), **blobs, **writes}, adds=[b"c/%d" % number, *writes])
        await record.write(change)
    assert [member for member, _ in (await record.walk(b"c/6")).heads] == [b"c/%d" % each for each in range(6, 0, -1)]
    assert [member for member, _ in (await record.walk(b"c/6", limit=2)).heads] == [b"c/6", b"c/5"]
    traces = [Trace(b"b/m/", b"m="), Trace(b"b/n/", b"n="), Trace(b"b/o/")]
    walk = await record.walk(b"c/6", prefix=b"c/", related=Related(b"w/", b"/"), traces=traces, skip_start=True)
    assert walk.heads == []
    for traced, channel, seed, last in zip(walk.traced, b"mn", ((b"b/m/2", b"seed"), None), (2, 1), strict=False):
        numbers = range(5, last - 1, -1)
        assert traced.entries == [(b"w/%d/t%c" % (number, channel), b"%c=%d" % (channel, number)) for number in numbers]
        assert traced.seed == seed
    assert len(walk.traced[2].entries) == 10, "without a beginning of values, all writes are collected"
    assert (await record.walk(b"nothing")).heads == []


async def test_a_walk_goes_on_beyond_the_bound_of_one_call_and_refuses_a_circle(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 8):
        writes = {b"w/%d/m" % number: b""}
        await record.write(Change(sets={**head(number), **writes}, adds=[b"c/%d" % number, *writes]))
    monkeypatch.setattr("redismem.protocol.record.reads.STEPS_COUNT", 2)
    options: dict[str, Any] = {"prefix": b"c/", "related": Related(b"w/", b"/"), "traces": [Trace(b"b")]}
    walk = await record.walk(b"c/7", **options)
    assert [member for member, _ in walk.traced[0].entries] == [b"w/%d/m" % each for each in range(7, 0, -1)]
    monkeypatch.setattr("redismem.record.record.LONGEST_WALK_COUNT", 20)
    await record.write(Change(sets={b"c/1": Head(b"c/7").encode()}))
    with pytest.raises(TooLarge, match="circle"):
        await record.walk(b"c/7")


async def test_the_names_of_heads_are_bounded(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """One head of 300,000 names held Redis for two seconds."""
    names = tuple(b"b%05d" % number for number in range(10_001))
    with pytest.raises(TooLarge, match="names 10,001 fields"):
        Head(b"", names).encode()
    value = b"".join(b"%d:%b" % (len(name), name) for name in (b"", *names)) + b";"  # of another writer
    await record.write(Change(sets={b"h": value}, adds=[b"h"]))
    for read in (partial(record.newest, named=True), partial(record.page, named=True), partial(record.walk, b"h")):
        with pytest.raises(TooLarge, match="over 10000 names or"):
            await read()
    assert (await record.newest()).value == value  # type: ignore[union-attr]
    await record.drop(b"h")
    heads = {b"c%02d" % at: Head(b"c%02d" % (at - 1) if at else b"", names[:2_000]).encode() for at in range(15)}
    await record.write(Change(sets=heads, adds=heads))
    page = await record.page(named=True)
    assert len(page.found) == 10
    rest = await record.page(named=True, after=page.after)
    assert [each.member for each in (*page.found, *rest.found)] == list(heads)
    visited: list[int] = []
    collect = Walker._collect

    def count(walker: Walker, reply: list[Any]) -> None:
        visited.append(reply[1])
        collect(walker, reply)

    monkeypatch.setattr(Walker, "_collect", count)
    walk = await record.walk(b"c14", related=Related(b"w", b":"), traces=[Trace(b"none")])
    assert (walk.traced[0].seed, visited) == (None, [11, 4])


async def test_a_drop_removes_members_with_their_fields_in_bounded_steps(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.protocol.record.reads.DROP_COUNT", 2)
    members = [b"w/%d" % number for number in range(7)]
    await record.write(Change(sets=dict.fromkeys([*members, b"x"], b"v"), adds=[*members, b"x"]))
    assert await record.drop(b"w/", before=b"w/2") == 2
    assert await record.drop(b"w/", limit=3) == 3
    assert [each.member for each in (await record.page()).found] == [b"w/5", b"w/6", b"x"]
    assert await record.drop(b"") == 3
    assert await record.get(*members, b"x") == [None] * 8
    assert await record.exists(), "only clear removes a record"


async def test_clear_removes_everything_if_its_conditions_hold(memory: Memory, record: Record, raw: Any) -> None:
    assert await record.clear() is False
    await record.write(Change(sets={b"a": b"1"}, adds=[b"a"]))
    with pytest.raises(RecordConflict) as caught:
        await record.clear(equals={b"a": b"2"})
    assert (caught.value.record_id, caught.value.field) == (record.id, b"a")
    assert await record.exists()
    assert await record.clear(equals={b"a": b"1"}) is True
    assert not await record.exists()
    assert (await memory.records()).records == []
    with pytest.raises(RecordConflict):
        await record.clear(equals={b"a": b"1"})
    assert await raw.exists(record.keys.record, record.keys.order, record.keys.records, record.keys.owned) == 0


async def test_records_are_listed_by_id_over_all_shards_in_pages(memory: Memory) -> None:
    ids = [f"r{number:02}" for number in range(40)]
    for name in ids:
        await memory.record(name, owner="ann").write(Change(sets={b"name": name.encode()}))
    await memory.record("other").write(Change())
    for limit in (1, 7, 40, 100):
        read, cursor = [], None
        while True:
            page = await memory.records("r", limit, cursor)
            read += page.records
            if (cursor := page.cursor) is None:
                break
        assert read == [RecordEntry(name, name, "ann") for name in ids]
    page = await memory.records("r0", fields=(b"name", b"none"))
    assert [entry.values for entry in page.records] == [(name.encode(), None) for name in ids[:10]]
    with pytest.raises(ValueError, match="cursor"):
        await memory.records(cursor="r01")


@pytest.mark.parametrize(
    "call",
    [
        lambda memory, _: memory.record(""),
        lambda memory, _: memory.record("x" * 1025),
        lambda memory, _: memory.record("a", tag=""),
        lambda memory, _: memory.record(b"a"),
        lambda memory, _: memory.record("a", ttl_s=0),
        lambda memory, _: memory.record("a", ttl_s=float("nan")),
        lambda _, record: record.write(Change(sets={b"": b"1"})),
        lambda _, record: record.write(Change(sets={"a": b"1"})),  # type: ignore[dict-item]
        lambda _, record: record.write(Change(sets={b"a": "1"})),  # type: ignore[dict-item]
        lambda _, record: record.write(Change(adds=b"abc")),  # type: ignore[arg-type]
        lambda _, record: record.write(Change(drops=[b"x" * 4097])),
        lambda _, record: record.get("a"),
        lambda _, record: record.page("a"),
        lambda _, record: record.newest(b"c/", member=b"d"),
        lambda _, record: record.page(b"a", related=Related(b"w", b"")),
        lambda _, record: record.page(b"a", related=Related(b"w", b"\xff")),
        lambda _, record: record.walk(b"a", traces=[Trace(b"b", b"m=")]),
        lambda _, record: record.drop(None),
        lambda _, record: record.clear(equals={b"": b""}),
    ],
)
async def test_a_mistake_is_refused_before_anything_is_sent(memory: Memory, record: Record, call: Any) -> None:
    with pytest.raises(InvalidRecord):
        await call(memory, record)
    assert not await record.exists()


async def test_a_change_over_its_limits_is_refused(record: Record) -> None:
    with pytest.raises(TooLarge, match="names"):
        await record.write(Change(adds=[b"%d" % number for number in range(20_001)]))
    large = b"x" * (32 * 1024 * 1024)
    with pytest.raises(TooLarge, match="bytes"):
        await record.write(Change(sets={b"a": large, b"b": large}))
    many = [b"%05d" % number for number in range(5_000)]
    await record.write(Change(sets=dict.fromkeys(many, b"v"), adds=many))
    assert len((await record.page(limit=10_000)).found) == 5_000
    await record.write(Change(drops=many, removes=many))
    assert (await record.page()).found == []


async def test_the_records_of_an_owner_are_listed_in_pages_by_id(memory: Memory) -> None:
    for number in range(12):
        owner = "anna" if number % 3 else "bo"
        await memory.record(f"{number % 2}/{number:02}", tag=str(number % 4), owner=owner).write(
            Change(sets={b"a": b""})
        )
    await memory.record("1/none").write(Change(sets={b"a": b""}))
    wanted = [f"1/{number:02}" for number in range(12) if number % 3 and number % 2]
    listed: list[str] = []
    cursor = None
    while not listed or cursor is not None:
        page = await memory.records("1/", 3, cursor, owner="anna")
        listed += [each.id for each in page.records]
        assert {each.owner for each in page.records} == {"anna"}
        cursor = page.cursor
    assert listed == wanted
    assert (await memory.records(owner="nobody")).records == []
    with pytest.raises(InvalidSessionId):
        await memory.records(owner="")

"""Writes, resends, drops, clears, expiry, damage and sweeps in any order: records agree with a plain-Python model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st
from support.redis_server import RedisServer

from redismem import CorruptSession, RecordConflict, SessionExists
from redismem.blocking import memory as blocking
from redismem.concurrency.run_sync import run_without_loop
from redismem.protocol.call import Call
from redismem.protocol.quarantine import Copy, drop_copy, read_copies, restore_copy
from redismem.protocol.record import calls
from redismem.protocol.record.keys import RecordKeys, record_keys
from redismem.protocol.record.quarantine import of_record, revive
from redismem.protocol.server_errors import ServerError
from redismem.record import Change, Head
from redismem.record.sweeping import RecordSweep

IDS = ("r", "s")
NAMES = st.sampled_from([b"a", b"b", b"c"])
VALUES = st.sampled_from([b"1", b"2", Head(b"b").encode(), Head(b"c", (b"a",)).encode()])
FIELDS = st.dictionaries(NAMES, VALUES, max_size=2)
SOME = st.lists(NAMES, max_size=2, unique=True)
CHANGES = st.builds(
    Change, equals=FIELDS, absent=SOME, sets=FIELDS, sets_once=FIELDS, drops=SOME, adds=SOME, removes=SOME
) | st.builds(Change, sets=FIELDS, adds=SOME)
RECORDS = st.sampled_from(IDS)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"), st.lists(st.tuples(RECORDS, CHANGES), min_size=1, max_size=2, unique_by=lambda c: c[0])
        ),
        st.tuples(st.just("write"), st.lists(st.tuples(RECORDS, CHANGES), min_size=1, max_size=1)),
        st.tuples(st.sampled_from(["resend", "deliver"]), st.integers(0, 9)),
        st.tuples(
            st.sampled_from(["drop", "clear", "reclear", "expire", "tear", "damage", "restore", "repair", "sweep"]),
            RECORDS,
        ),
    ),
    min_size=3,
    max_size=9,
)
_numbers = itertools.count()


@dataclass
class Stored:
    """A record in plain Python."""

    fields: dict[bytes, bytes] = field(default_factory=dict)
    members: set[bytes] = field(default_factory=set)
    nonces: list[int] = field(default_factory=list)
    life: int = field(default_factory=lambda: -next(_numbers) - 1)
    """The number of the write that created it, which is negative after a restoration."""


@dataclass
class Model:
    """Records, their copies in quarantine, and the writes that were sent."""

    records: dict[str, Stored] = field(default_factory=dict)
    copies: dict[str, list[Stored]] = field(default_factory=lambda: {name: [] for name in IDS})

    def write(self, nonce: int, changes: list[tuple[str, Change]]) -> Any:
        """Return the outcome, or record and field of the check that does not hold."""
        checked = [name for name, change in changes if change.checks()]
        if any(name in self.records and nonce in self.records[name].nonces for name in checked):
            return "duplicate"
        for name, change in changes:
            found = self.records[name].fields if name in self.records else {}
            for place, value in change.equals.items():
                if found.get(place) != value:
                    return name, place
            for place in change.absent:
                if place in found:
                    return name, place
        outcome = "ok" if all(name in self.records for name, _ in changes) else "created"
        for name, change in changes:
            stored = self.records.setdefault(name, Stored(life=nonce))
            self.apply(stored, change)
            if name in checked:
                stored.nonces = [nonce, *stored.nonces][:16]
        return outcome

    @staticmethod
    def apply(stored: Stored, change: Change) -> None:
        for place in change.drops:
            stored.fields.pop(place, None)
        stored.members -= set(change.removes)
        stored.fields = {**change.sets_once, **stored.fields} | dict(change.sets)
        stored.members |= set(change.adds)

    def walk(self, name: str, start: bytes) -> list[bytes]:
        stored, member = self.records.get(name, Stored()), start
        found: list[bytes] = []
        while member in stored.fields and len(found) < 5:
            found.append(member)
            value = stored.fields[member]
            member = Head.decode(value).parent if b":" in value else b""
        return found


class Pair:
    """Two records of one tag in Redis, beside their model."""

    def __init__(self, memory: blocking.Memory, raw: redis.Redis) -> None:
        self.memory, self.raw, self.model = memory, raw, Model()
        self.number = next(_numbers)
        self.sent: list[tuple[Call[Any], int, list[tuple[str, Change]]]] = []
        self.cleared: list[tuple[str, Call[Any], int | None]] = []

    def keys(self, name: str) -> RecordKeys:
        return record_keys(self.memory.store.keys, f"{name}{self.number}", f"tag{self.number}", owner="ann", ttl_s=900)

    def record(self, name: str) -> Any:
        return self.memory.record(f"{name}{self.number}", tag=f"tag{self.number}", owner="ann", ttl_s=900)

    def run(self, call: Call[Any]) -> Any:
        return run_without_loop(self.memory.store.run(call))

    def send(self, place: int) -> bool:
        """Send a call, and return True unless its conditions do not hold."""
        call, nonce, changes = self.sent[place]
        expected = self.model.write(nonce, changes)
        if isinstance(expected, str):
            assert self.run(call) == expected
            return True
        with pytest.raises(RecordConflict) as caught:
            self.run(call)
        assert (caught.value.record_id, caught.value.field) == (f"{expected[0]}{self.number}", expected[1])
        return False

    def write(self, changes: list[tuple[str, Change]]) -> None:
        call = calls.write([(self.keys(name), change) for name, change in changes], None)
        self.sent.append((call, len(self.sent), changes))
        self.send(-1)
        self.reclear("")

    def resend(self, place: int) -> None:
        """The reply was lost: the library sends a call again, maybe long after others."""
        if self.sent:
            self.send(place % len(self.sent))

    def deliver(self, place: int) -> None:
        """The library sends a call again, and its first attempt arrives late: it changes nothing."""
        if self.sent:
            call, nonce, changes = self.sent[place % len(self.sent)]
            self.sent.append((call.again(), nonce, changes))
            if self.send(-1):
                with pytest.raises(ServerError, match="OVERTAKEN"):
                    run_without_loop(self.memory.store.once(call))

    def drop(self, name: str) -> None:
        stored = self.model.records.get(name, Stored())
        gone = {member for member in stored.members if member < b"c"}
        assert self.record(name).drop(b"", before=b"c") == len(gone)
        self.model.apply(stored, Change(drops=gone, removes=gone))

    def clear(self, name: str) -> None:
        clear = calls.clear(self.keys(name), {}, self.memory.store.settings)
        self.cleared.append((name, clear, self.life_of(name)))
        self.reclear(name)

    def reclear(self, _: str) -> None:
        """A clear that is sent again spares a record that was begun since, but not by a resent write of its life."""
        for name, clear, seen in self.cleared[-1:]:
            cleared = self.run(clear)
            assert cleared.was_there is (seen is not None)
            self.run(drop_copy(of_record(self.keys(name)), *cleared.copies_ms or [0]))
            self.model.copies[name] = []
            if self.life_of(name) == seen:
                self.model.records.pop(name, None)

    def life_of(self, name: str) -> int | None:
        return self.model.records[name].life if name in self.model.records else None

    def expire(self, name: str) -> None:
        self.raw.delete(self.keys(name).record, self.keys(name).order)
        self.model.records.pop(name, None)
        self.sweep(name)

    def repair(self, name: str) -> None:
        self.write([(name, Change(sets={b"a": b"1"}, adds=[b"a"]))])
        self.damage(name)
        self.restore(name)

    def tear(self, name: str) -> None:
        """Redis evicts one of both keys."""
        self.raw.delete(self.keys(name).record)
        self.model.records.pop(name, None)

    def damage(self, name: str) -> None:
        if name in self.model.records:
            self.raw.hset(self.keys(name).record, "", "garbage")
            with pytest.raises(CorruptSession):
                self.record(name).newest()
            assert self.record(name).set_aside()
            stored = self.model.records.pop(name)
            self.model.copies[name].append(stored)
            newest = self.copies(name)[-1]
            fields, order = newest.place.copies(newest.put_ms).values()
            assert self.raw.hgetall(fields) == {**stored.fields, b"": b"garbage"}
            assert self.raw.zrange(order, 0, -1) == sorted(stored.members)

    def copies(self, name: str) -> list[Copy]:
        return list(self.run(read_copies({of_record(self.keys(name)): set()})))

    def restore(self, name: str) -> None:
        copies = self.copies(name)
        assert len(copies) == len(self.model.copies[name])
        if not copies:
            return
        call = restore_copy(copies[0].place, copies[0].put_ms, revive(copies[0]))
        if name in self.model.records or self.raw.exists(self.keys(name).order):
            with pytest.raises(SessionExists):
                self.run(call)
            return
        assert self.run(call) is True
        restored = self.model.copies[name].pop(0)
        self.model.records[name] = Stored(restored.fields, restored.members)

    def sweep(self, _: str) -> None:
        run_without_loop(RecordSweep(self.memory.store).sweep())
        for index in (self.keys("r").records, self.keys("r").owned):
            listed = [name for name in IDS if self.raw.zscore(index, f"{name}{self.number}") is not None]
            assert listed == sorted(self.model.records)

    def agrees(self) -> None:
        for name in IDS:
            stored, record = self.model.records.get(name), self.record(name)
            assert record.exists() is (stored is not None)
            found = stored or Stored()
            assert record.get(b"a", b"b", b"c") == [found.fields.get(each) for each in (b"a", b"b", b"c")]
            page = [(each.member, each.value) for each in record.page().found]
            assert page == [(member, found.fields.get(member)) for member in sorted(found.members)]
            assert [member for member, _ in record.walk(b"a", limit=5).heads] == self.model.walk(name, b"a")
            keys: Any = (self.keys(name).record, self.keys(name).order)
            times = {self.raw.pexpiretime(key) for key in keys} - {-2}
            assert stored is None or (len(times) == 1 and min(times) > 0)


@pytest.fixture(scope="module")
def memory(redis_server: RedisServer) -> Iterator[blocking.Memory]:
    with blocking.Memory.connect(redis_server.url, namespace="record-orders") as memory:
        yield memory


@example(
    steps=[("write", [("r", Change())]), ("clear", "r"), ("resend", 0), ("write", [("r", Change(sets={b"a": b"1"}))])]
)
@given(steps=STEPS)
def test_no_order_of_calls_breaks_a_record(
    memory: blocking.Memory, redis_server: RedisServer, steps: list[Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch, redis.Redis(port=redis_server.port) as raw:
        patch.setattr("redismem.record.quarantine.now_ms", itertools.count(1).__next__)
        pair = Pair(memory, raw)
        for name, argument in steps:
            getattr(pair, name)(deepcopy(argument))
            pair.agrees()
        for name in IDS:
            pair.record(name).clear()
        assert raw.keys(f"*:*[rs]{pair.number}") == []

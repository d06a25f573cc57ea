"""The shared base of the machines: a project on its own store, a clock, and moments to ask about."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from support.clock import BEGIN, ProjectClock

from project_model.model import Fields, Modelled, alive
from redismem import InvalidItem, ItemNotFound
from redismem.blocking import memory
from redismem.concurrency.run_sync import run_without_loop
from redismem.inspection.projects import check_projects

_numbers = itertools.count(1)

TITLES = st.sampled_from(["alpha", "Alpha beta", "BETA gamma", "gamma-delta", "Straße", "al"])
ASKED = st.sampled_from(["", "al", "alpha", "beta g", "GAMMA", "strass", "x", "delta al"])
TAGS = st.lists(st.sampled_from(["Db", "db", "ui", "api"]), max_size=2)
LATE_MS = st.one_of(st.none(), st.none(), st.integers(0, 9_000))
AGO_MS = st.none() | st.integers(0, 30_000)
UNTIL_MS = st.none() | st.integers(-20_000, 20_000)
PLACES = st.integers(0, 1_000)


class ProjectMachine(RuleBasedStateMachine):
    """A project's store beside its model. `connect` opens the store; a run sets it first."""

    connect: Callable[[], Any]
    letter = ""

    def __init__(self) -> None:
        super().__init__()
        self.client = type(self).connect()
        self.clock = ProjectClock()
        namespace = f"project-model-{next(_numbers)}"
        self.memory = memory.Memory.connect(client=self.client, namespace=namespace, clock=self.clock)
        self.apollo = self.memory.project("apollo")
        self.items: dict[str, Modelled] = {}

    def teardown(self) -> None:
        try:
            assert run_without_loop(self.violations()) == []
        finally:
            self.memory.close()
            self.client.close()

    async def violations(self) -> list[str]:
        return [violation.text async for violation in check_projects(self.memory.store)]

    @property
    def now_ms(self) -> int:
        return self.ms(self.clock.now)

    @staticmethod
    def ms(moment: datetime) -> int:
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    @staticmethod
    def moment(ms: int | None) -> datetime | None:
        return None if ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)

    def living(self) -> list[Modelled]:
        return [item for item in self.items.values() if item.as_of() is not None]

    def pick(self, place: int) -> Modelled:
        items = self.living()
        return items[place % len(items)]

    def late(self, late_ms: int | None) -> int | None:
        return None if late_ms is None else self.now_ms - late_ms

    def moment_of(self, item: Modelled, at_ms: int | None) -> int:
        """Return the moment from which a change is true, if it is entered for `at_ms`; `None` means now."""
        return max(self.now_ms, item.latest_ms) if at_ms is None else at_ms

    def refused(self, error: type[Exception] | tuple[type[Exception], ...], call: Callable[[], Any]) -> None:
        with pytest.raises(error):
            call()

    def is_too_early(self, item: Modelled, at_ms: int | None, call: Callable[[], Any]) -> bool:
        """True if a change precedes its item; asserts that it is refused."""
        if at_ms is None or at_ms >= item.begun_ms:
            return False
        self.refused(InvalidItem, call)
        return True

    @rule(ms=st.integers(0, 4_000))
    def time_goes_on(self, ms: int) -> None:
        self.clock.tick(ms / 1000)

    @rule(place=PLACES, ago_ms=AGO_MS, known_ago_ms=AGO_MS)
    @precondition(lambda self: self.items)
    def an_item_is_as_it_was(self, place: int, ago_ms: int | None, known_ago_ms: int | None) -> None:
        item = list(self.items.values())[place % len(self.items)]
        at_ms, known_ms = self.late(ago_ms), self.late(known_ago_ms)
        expected = item.as_of(at_ms, known_ms)
        store = self.store()
        moments = {"at": self.moment(at_ms), "known_at": self.moment(known_ms)}
        assert store.exists(item.id, **moments) == (expected is not None)
        if expected is None:
            self.refused(ItemNotFound, lambda: store.get(item.id, **moments))
        else:
            self.compare(store.get(item.id, **moments), expected)

    @rule(ago_ms=st.integers(-1, 30_000))
    def valid_at_finds_the_items_valid_then(self, ago_ms: int) -> None:
        at_ms = self.now_ms - ago_ms
        expected = {
            item_id
            for item_id, fields in alive(self.items.values(), at_ms, None)
            if fields["valid_until"] is None or at_ms < fields["valid_until"]
        }
        items = self.store().valid_at(self.moment(at_ms))
        assert {item.id for item in items} == expected

    def ask(self, fits: Callable[[Fields], bool], ago_ms: int | None, limit: int, **criteria: Any) -> None:
        """Compare a query, now or as of `ago_ms`, page by page with a filter over all items of the model."""
        at_ms = self.late(ago_ms)
        matches = [pair for pair in alive(self.items.values(), at_ms, None) if fits(pair[1])]
        ordered = sorted(((self.order(fields), id) for id, fields in matches), reverse=True)
        expected = [item_id for _, item_id in ordered]
        if at_ms is not None:
            criteria["at"] = self.moment(at_ms)
        ids: list[str] = []
        cursor = None
        while True:
            page = self.store().list(limit=limit, cursor=cursor, **criteria)
            ids += [item.id for item in page]
            if (cursor := page.cursor) is None:
                break
        assert ids == expected
        assert self.store().count(**criteria) == len(expected)

    def store(self) -> Any:
        raise NotImplementedError

    def order(self, fields: Fields) -> Any:
        return fields["created_ms"]

    def compare(self, record: Any, expected: Fields) -> None:
        raise NotImplementedError

    def same(self, record: Any, expected: Fields, *names: str) -> None:
        """Assert that the record equals the model in these fields."""
        for name in ("version", "valid_until", *names):
            value = getattr(record, name)
            if isinstance(value, datetime):
                value = self.ms(value)
            assert (list(value) if isinstance(value, tuple) else value) == expected[name], name
        assert self.ms(record.created_at) == expected["created_ms"]
        assert self.ms(record.valid_from) == expected["valid_from_ms"]


__all__ = ["ASKED", "BEGIN", "LATE_MS", "PLACES", "TAGS", "TITLES", "UNTIL_MS", "ProjectMachine"]

"""Decisions at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from project_model.machine import ASKED, LATE_MS, PLACES, TAGS, TITLES, UNTIL_MS, ProjectMachine
from project_model.model import Fields, Modelled, Passed, adds, drops, ends, has_words, legal, sets
from redismem import Conflict, InvalidItem, InvalidTransition

WAYS = {
    "proposed": "accepted rejected superseded deprecated",
    "accepted": "rejected superseded deprecated",
    "rejected": "",
    "superseded": "",
    "deprecated": "superseded",
}
FRESH: Fields = {"superseded_by": None, "supersedes": None, "related": [], "said_until": None}
STEPS = {"accept": "accepted", "reject": "rejected", "deprecate": "deprecated"}


def follows(fields: Fields, passed: Passed, known: int) -> None:
    ends(("rejected", "superseded", "deprecated"), fields, passed, known)


def tidy(tags: list[str]) -> list[str]:
    return sorted({tag.casefold() for tag in tags})


class DecisionsMachine(ProjectMachine):
    """Creates, changes, supersedes, links and deletes decisions, and asks for them."""

    def store(self) -> Any:
        return self.apollo.decisions

    def compare(self, record: Any, expected: Fields) -> None:
        self.same(record, expected, "title", "tags", "status", "superseded_by", "supersedes")
        assert list(record.related_decisions) == expected["related"]
        assert record.history[-1].status == expected["status"]

    def made(self, id: str, at_ms: int | None, **fields: Any) -> Modelled:
        item = self.items[id] = Modelled(id, follows)
        effect = sets(**FRESH | fields)
        item.happen(self.now_ms if at_ms is None else at_ms, self.now_ms, effect)
        return item

    @rule(title=TITLES, tags=TAGS, late_ms=LATE_MS, status=st.sampled_from(["proposed", "accepted"]))
    def create(self, title: str, tags: list[str], late_ms: int | None, status: str) -> None:
        at_ms = self.late(late_ms)
        record = self.apollo.decisions.create(title=title, tags=tags, at=self.moment(at_ms), status=status)  # type: ignore[arg-type]
        self.made(record.id, at_ms, title=title, tags=tidy(tags), status=status)

    @rule(place=PLACES, title=st.none() | TITLES, tags=st.none() | TAGS, until=UNTIL_MS, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def update(
        self, place: int, title: str | None, tags: list[str] | None, until: int | None, late_ms: int | None
    ) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        stored: Fields = {"title": title, "tags": None if tags is None else tidy(tags)}
        stored["said_until"] = None if until is None else self.now_ms + until
        stored = {name: value for name, value in stored.items() if value is not None}
        given: Fields = {name: value for name, value in (("title", title), ("tags", tags)) if value is not None}
        if until is not None:
            given["valid_until"] = self.moment(stored["said_until"])

        def call() -> Any:
            return self.apollo.decisions.update(item.id, at=self.moment(at_ms), **given)

        if not given or stored.get("said_until", item.begun_ms) < item.begun_ms:
            self.refused(InvalidItem, call)
        elif not self.is_too_early(item, at_ms, call):
            moment_ms = self.moment_of(item, at_ms)
            record = call()
            item.happen(moment_ms, self.now_ms, sets(**stored))
            self.compare(record, item.now)

    @rule(place=PLACES, verb=st.sampled_from(sorted(STEPS)), late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def turn(self, place: int, verb: str, late_ms: int | None) -> None:
        item, at_ms, status = self.pick(place), self.late(late_ms), STEPS[verb]

        def call() -> Any:
            return getattr(self.apollo.decisions, verb)(item.id, at=self.moment(at_ms))

        if self.is_too_early(item, at_ms, call):
            return
        moment_ms = self.moment_of(item, at_ms)
        if not legal(WAYS, item.path_with(moment_ms, status=status)):
            self.refused(InvalidTransition, call)
            return
        record = call()
        item.happen(moment_ms, self.now_ms, sets(status=status))
        self.compare(record, item.now)

    @rule(place=PLACES, title=TITLES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def supersede_by_a_new_one(self, place: int, title: str, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)

        def call() -> Any:
            return self.apollo.decisions.supersede(item.id, title=title, at=self.moment(at_ms))

        if self.is_too_early(item, at_ms, call):
            return
        moment_ms = self.moment_of(item, at_ms)
        if not legal(WAYS, item.path_with(moment_ms, status="superseded")):
            self.refused(InvalidTransition, call)
            return
        record = call()
        self.made(record.id, at_ms, title=title, tags=[], status="accepted", supersedes=item.id)
        item.happen(moment_ms, self.now_ms, sets(status="superseded", superseded_by=record.id))

    @rule(place=PLACES, other=PLACES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def supersede_by_another(self, place: int, other: int, late_ms: int | None) -> None:
        item, new, at_ms = self.pick(place), self.pick(other), self.late(late_ms)
        moment_ms = self.moment_of(item, at_ms)

        def call() -> Any:
            return self.apollo.decisions.supersede(item.id, new.id, at=self.moment(at_ms))

        if item.id == new.id or new.now["supersedes"] or new.now["superseded_by"]:
            self.refused(InvalidItem, call)
        elif self.is_too_early(new, at_ms, call) or self.is_too_early(item, at_ms, call):
            pass
        elif not legal(WAYS, item.path_with(moment_ms, status="superseded")):
            self.refused(InvalidTransition, call)
        else:
            new_ms = self.moment_of(new, at_ms)
            call()
            new.happen(new_ms, self.now_ms, sets(supersedes=item.id))
            item.happen(moment_ms, self.now_ms, sets(status="superseded", superseded_by=new.id))

    @rule(place=PLACES, other=PLACES, ends=st.booleans(), late_ms=LATE_MS)
    @precondition(lambda self: len(self.living()) > 1)
    def link(self, place: int, other: int, ends: bool, late_ms: int | None) -> None:
        one, two, at_ms = self.pick(place), self.pick(other), self.late(late_ms)
        verb = self.apollo.decisions.unlink_decision if ends else self.apollo.decisions.link_decision

        def call() -> Any:
            return verb(one.id, two.id, at=self.moment(at_ms))

        if one.id == two.id:
            self.refused(InvalidItem, call)
            return
        if any(self.is_too_early(item, at_ms, call) for item in (one, two)):
            return
        times = {item.id: self.moment_of(item, at_ms) for item in (one, two)}
        call()
        for item, its_other in ((one, two), (two, one)):
            item.happen(times[item.id], self.now_ms, (drops if ends else adds)("related", its_other.id))

    @rule(place=PLACES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def delete(self, place: int, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        if self.is_too_early(item, at_ms, lambda: self.apollo.decisions.delete(item.id, at=self.moment(at_ms))):
            return
        moment_ms, related = self.moment_of(item, at_ms), item.now["related"]
        times = {other: self.moment_of(self.items[other], None) for other in related}
        self.apollo.decisions.delete(item.id, at=self.moment(at_ms))
        for other in related:
            self.items[other].happen(times[other], self.now_ms, drops("related", item.id))
        item.happen(moment_ms, self.now_ms, sets(deleted=True))

    @rule(place=PLACES, title=TITLES)
    @precondition(lambda self: self.living())
    def come_too_late(self, place: int, title: str) -> None:
        item = self.pick(place)
        version = item.now["version"]
        for expect in {version - 1, version + 1}:
            self.refused(Conflict, lambda: self.apollo.decisions.update(item.id, title=title, expect=expect))  # noqa: B023

    @rule(
        asked=ASKED,
        tags=TAGS,
        status=st.none() | st.sampled_from(sorted(WAYS)),
        hidden=st.booleans(),
        ago_ms=st.none() | st.integers(0, 30_000),
        limit=st.sampled_from([1, 2, 100]),
    )
    def ask_for_some(
        self, asked: str, tags: list[str], status: str | None, hidden: bool, ago_ms: int | None, limit: int
    ) -> None:
        def fits(fields: Fields) -> bool:
            shown = fields["status"] == status if status else hidden or fields["status"] != "superseded"
            return shown and set(tidy(tags)) <= set(fields["tags"]) and has_words(asked, fields["title"])

        self.ask(fits, ago_ms, limit, text=asked, tags=tags, status=status, include_superseded=hidden)

    @rule(place=PLACES)
    @precondition(lambda self: self.living())
    def the_chain_is_equal_from_each_of_its_decisions(self, place: int) -> None:
        item = self.pick(place)
        chain = [item.id]
        for end, name in ((0, "supersedes"), (-1, "superseded_by")):
            while (other := self.items[chain[end]].now[name]) and self.items[other].as_of() is not None:
                chain.insert(0 if end == 0 else len(chain), other)
        assert [each.id for each in self.apollo.decisions.history(item.id)] == chain

"""Tasks at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from project_model.machine import ASKED, LATE_MS, PLACES, TITLES, ProjectMachine
from project_model.model import Fields, Modelled, adds, both, drops, has_words, legal, sets
from redismem import InvalidItem, InvalidTransition

WAYS = {
    "backlog": "planned in_progress blocked cancelled",
    "planned": "backlog in_progress blocked cancelled",
    "in_progress": "backlog planned blocked completed cancelled",
    "blocked": "backlog planned in_progress cancelled",
    "completed": "backlog",
    "cancelled": "backlog",
}
VERBS = {"plan": "planned", "start": "in_progress", "complete": "completed", "cancel": "cancelled", "reopen": "backlog"}
DONE = ("completed", "cancelled")
PRIORITIES = ("low", "medium", "high", "critical")


class TasksMachine(ProjectMachine):
    """Creates, moves, blocks, chains and deletes tasks, and asks for them."""

    def store(self) -> Any:
        return self.apollo.tasks

    def order(self, fields: Fields) -> Any:
        return PRIORITIES.index(fields["priority"]), fields["created_ms"]

    def compare(self, record: Any, expected: Fields) -> None:
        self.same(record, expected, "title", "status", "priority", "assignee", "blocked_by", "dependencies")
        for name in ("completed_at", "due_date"):
            value = getattr(record, name)
            assert (None if value is None else self.ms(value)) == expected[name]

    def before_blocked(self, item: Modelled, at_ms: int | None) -> str:
        """The last status that it had but `blocked`, as of then."""
        moments = sorted({each.at_ms for each in item.happenings if at_ms is None or each.at_ms <= at_ms})
        seen = []
        for happening in sorted(each for each in item.happenings if each.at_ms in moments):
            fields: Fields = {"status": None, "blocked_by": [], "dependencies": []}
            happening.effect(fields)
            seen += [fields["status"]] if fields["status"] not in (None, "blocked") else []
        return str(seen[-1])

    @rule(title=TITLES, priority=st.sampled_from(PRIORITIES), needs=st.lists(PLACES, max_size=2), late_ms=LATE_MS)
    def create(self, title: str, priority: str, needs: list[int], late_ms: int | None) -> None:
        at_ms = self.late(late_ms)
        needed = list(dict.fromkeys(self.pick(place).id for place in needs if self.living()))
        made: Any = {"priority": priority, "dependencies": needed, "at": self.moment(at_ms)}
        record = self.apollo.tasks.create(title=title, **made)
        item = self.items[record.id] = Modelled(record.id)
        fresh: Fields = dict.fromkeys(("assignee", "due_date", "completed_at", "valid_until"))
        fresh["blocked_by"] = []
        effect = sets(title=title, priority=priority, dependencies=needed, status="backlog", **fresh)
        item.happen(self.now_ms if at_ms is None else at_ms, self.now_ms, effect)

    @rule(
        place=PLACES,
        priority=st.none() | st.sampled_from(PRIORITIES),
        assignee=st.sampled_from(["Ada", "ADA", "Bob", None]),
        due_ms=st.none() | st.integers(-5_000, 5_000),
        late_ms=LATE_MS,
    )
    @precondition(lambda self: self.living())
    def update(
        self, place: int, priority: str | None, assignee: str | None, due_ms: int | None, late_ms: int | None
    ) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        due = None if due_ms is None else self.now_ms + due_ms
        given: dict[str, Any] = {"assignee": assignee} | ({"priority": priority} if priority else {})

        def call() -> Any:
            return self.apollo.tasks.update(item.id, due_date=self.moment(due), at=self.moment(at_ms), **given)

        if not self.is_too_early(item, at_ms, call):
            moment_ms = self.moment_of(item, at_ms)
            record = call()
            item.happen(moment_ms, self.now_ms, sets(due_date=due, **given))
            self.compare(record, item.now)

    @rule(place=PLACES, verb=st.sampled_from(sorted(VERBS)), late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def move(self, place: int, verb: str, late_ms: int | None) -> None:
        item, at_ms, status = self.pick(place), self.late(late_ms), VERBS[verb]

        def call() -> Any:
            return getattr(self.apollo.tasks, verb)(item.id, at=self.moment(at_ms))

        if self.is_too_early(item, at_ms, call):
            return
        moment_ms = self.moment_of(item, at_ms)
        if not legal(WAYS, item.statuses_with(moment_ms, status)):
            self.refused(InvalidTransition, call)
            return
        change: Fields = {"status": status}
        if item.now["blocked_by"]:
            change["blocked_by"] = []
        if item.now["status"] in DONE:
            change |= {"completed_at": None, "valid_until": None}
        if status in DONE:
            change["valid_until"] = moment_ms
        if status == "completed":
            change["completed_at"] = moment_ms
        waiting = (
            [other for other in self.living() if item.id in other.now["blocked_by"]] if status == "completed" else []
        )
        times = {other.id: self.moment_of(other, None) for other in waiting}
        record = call()
        item.happen(moment_ms, self.now_ms, sets(**change))
        for other in waiting:
            is_free = other.now["blocked_by"] == [item.id] and other.now["status"] == "blocked"
            freed = sets(status=self.before_blocked(other, None)) if is_free else sets()
            other.happen(times[other.id], self.now_ms, both(freed, drops("blocked_by", item.id)))
        self.compare(record, item.now)

    @rule(place=PLACES, by=st.sampled_from(["a review", "a key"]) | PLACES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def block(self, place: int, by: str | int, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        other = self.pick(by) if isinstance(by, int) else None
        blocker = by if isinstance(by, str) else self.pick(by).id

        def call() -> Any:
            return self.apollo.tasks.block(item.id, blocker, at=self.moment(at_ms))

        if other is not None and (other.id == item.id or other.now["status"] in DONE):
            self.refused(InvalidItem, call)
            return
        if self.is_too_early(item, at_ms, call):
            return
        moment_ms, is_blocked = self.moment_of(item, at_ms), item.now["status"] == "blocked"
        if not is_blocked and not legal(WAYS, item.statuses_with(moment_ms, "blocked")):
            self.refused(InvalidTransition, call)
            return
        record = call()
        change = sets() if is_blocked else sets(status="blocked")
        item.happen(moment_ms, self.now_ms, both(change, adds("blocked_by", blocker)))
        self.compare(record, item.now)

    @rule(place=PLACES)
    @precondition(lambda self: self.living())
    def unblock(self, place: int) -> None:
        item = self.pick(place)

        def call() -> Any:
            return self.apollo.tasks.unblock(item.id)

        if item.now["status"] != "blocked":
            self.refused(InvalidTransition, call)
            return
        moment_ms, before = self.moment_of(item, None), self.before_blocked(item, None)
        if not legal(WAYS, item.statuses_with(moment_ms, before)):
            self.refused(InvalidTransition, call)
            return
        record = call()
        item.happen(moment_ms, self.now_ms, sets(status=before, blocked_by=[]))
        self.compare(record, item.now)

    def needed_by(self, task_id: str) -> set[str]:
        found, level = {task_id}, {task_id}
        while level:
            level = {other for each in level for other in self.items[each].now["dependencies"]} - found
            level = {other for other in level if self.items[other].as_of() is not None}
            found |= level
        return found

    @rule(place=PLACES, other=PLACES)
    @precondition(lambda self: self.living())
    def need(self, place: int, other: int) -> None:
        item, needed = self.pick(place), self.pick(other)

        def call() -> Any:
            return self.apollo.tasks.add_dependency(item.id, needed.id)

        if item.id in self.needed_by(needed.id):
            self.refused(InvalidItem, call)
        else:
            moment_ms = self.moment_of(item, None)
            call()
            item.happen(moment_ms, self.now_ms, adds("dependencies", needed.id))

    @rule(place=PLACES, other=PLACES)
    @precondition(lambda self: self.living())
    def need_no_more(self, place: int, other: int) -> None:
        item, needed = self.pick(place), self.pick(other)
        moment_ms = self.moment_of(item, None)
        self.apollo.tasks.remove_dependency(item.id, needed.id)
        item.happen(moment_ms, self.now_ms, drops("dependencies", needed.id))

    @rule(place=PLACES)
    @precondition(lambda self: self.living())
    def delete(self, place: int) -> None:
        item = self.pick(place)
        moment_ms, others = self.moment_of(item, None), []
        for other in self.living():
            names = [name for name in ("dependencies", "blocked_by") if item.id in other.now[name]]
            if names and other.id != item.id:
                others.append((other, self.moment_of(other, None), names))
        self.apollo.tasks.delete(item.id)
        for other, other_ms, names in others:
            other.happen(other_ms, self.now_ms, both(*(drops(name, item.id) for name in names)))
        item.happen(moment_ms, self.now_ms, sets(deleted=True, valid_until=moment_ms))

    @rule(place=PLACES)
    @precondition(lambda self: self.living())
    def it_can_start_when_all_it_needs_is_done(self, place: int) -> None:
        item = self.pick(place)
        others = [self.items[other].as_of() for other in item.now["dependencies"]]
        expected = all(other is None or other["status"] == "completed" for other in others)
        assert self.apollo.tasks.can_start(item.id) == expected
        graph = self.apollo.tasks.dependency_graph(item.id)
        assert {id: list(needed) for id, needed in graph.items()} == {
            id: self.items[id].now["dependencies"] for id in self.needed_by(item.id)
        }

    @rule(
        asked=ASKED,
        statuses=st.none() | st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=2),
        assignee=st.sampled_from([None, None, "ada", "BOB"]),
        priority=st.none() | st.sampled_from(PRIORITIES),
        completed=st.booleans(),
        cancelled=st.booleans(),
        due_ms=st.none() | st.integers(-5_000, 5_000),
        ago_ms=st.none() | st.integers(0, 30_000),
        limit=st.sampled_from([1, 2, 100]),
    )
    def ask_for_some(
        self,
        asked: str,
        statuses: list[str] | None,
        assignee: str | None,
        priority: str | None,
        completed: bool,
        cancelled: bool,
        due_ms: int | None,
        ago_ms: int | None,
        limit: int,
    ) -> None:
        before_ms = None if due_ms is None else self.now_ms + due_ms
        hidden = {name for name, shown in (("completed", completed), ("cancelled", cancelled)) if not shown}

        def fits(fields: Fields) -> bool:
            shown = fields["status"] in statuses if statuses else fields["status"] not in hidden
            mine = assignee is None or (fields["assignee"] or "").casefold() == assignee.casefold()
            due = before_ms is None or (
                fields["due_date"] is not None and fields["due_date"] < before_ms and fields["status"] not in DONE
            )
            return (
                shown and mine and due and priority in (None, fields["priority"]) and has_words(asked, fields["title"])
            )

        criteria: dict[str, Any] = {"include_completed": completed, "include_cancelled": cancelled}
        criteria |= {
            "status": statuses,
            "assignee": assignee,
            "priority": priority,
            "due_before": self.moment(before_ms),
        }
        self.ask(fits, ago_ms, limit, text=asked, **criteria)

    @rule()
    def what_is_overdue_is_found(self) -> None:
        expected = {
            item.id
            for item in self.living()
            if item.now["due_date"] is not None
            and item.now["due_date"] < self.now_ms
            and item.now["status"] not in DONE
        }
        assert {task.id for task in self.apollo.tasks.overdue()} == expected

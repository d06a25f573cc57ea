"""Tasks at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from project_model.machine import ASKED, LATE_MS, PLACES, TITLES, UNTIL_MS, ProjectMachine
from project_model.model import Fields, Modelled, Passed, adds, both, drops, ends, has_words, legal, sets
from redismem import InvalidItem, InvalidTransition

WAYS = {
    "backlog": "planned in_progress blocked cancelled",
    "planned": "backlog in_progress blocked cancelled",
    "in_progress": "backlog planned blocked completed cancelled",
    "blocked": "backlog planned in_progress blocked cancelled",
    "completed": "backlog",
    "cancelled": "backlog",
}
VERBS = {"plan": "planned", "start": "in_progress", "complete": "completed", "cancel": "cancelled", "reopen": "backlog"}
DONE = ("completed", "cancelled")
PRIORITIES = ("low", "medium", "high", "critical")


def follows(fields: Fields, passed: Passed, known: int) -> None:
    """Derive a task's fields: it is blocked exactly while it waits, and completed since its status became that."""
    if fields["status"] != "blocked":
        fields["blocked_by"] = []
    elif not fields["blocked_by"]:
        fields["status"] = next(status for status, _ in reversed(passed) if status != "blocked")
        passed.append((fields["status"], fields["moment_ms"]))
    fields["completed_at"] = passed[-1][1] if fields["status"] == "completed" else None
    ends(DONE, fields, passed, known)


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

    @rule(title=TITLES, priority=st.sampled_from(PRIORITIES), needs=st.lists(PLACES, max_size=2), late_ms=LATE_MS)
    def create(self, title: str, priority: str, needs: list[int], late_ms: int | None) -> None:
        at_ms = self.late(late_ms)
        needed = list(dict.fromkeys(self.pick(place).id for place in needs if self.living()))
        made: Any = {"priority": priority, "dependencies": needed, "at": self.moment(at_ms)}
        record = self.apollo.tasks.create(title=title, **made)
        item = self.items[record.id] = Modelled(record.id, follows)
        fresh: Fields = dict.fromkeys(("assignee", "due_date", "said_until"))
        fresh["blocked_by"] = []
        effect = sets(title=title, priority=priority, dependencies=needed, status="backlog", **fresh)
        item.happen(self.now_ms if at_ms is None else at_ms, self.now_ms, effect)

    @rule(
        place=PLACES,
        priority=st.none() | st.sampled_from(PRIORITIES),
        assignee=st.sampled_from(["Ada", "ADA", "Bob", None]),
        due_ms=st.none() | st.integers(-5_000, 5_000),
        until=UNTIL_MS,
        late_ms=LATE_MS,
    )
    @precondition(lambda self: self.living())
    def update(
        self,
        place: int,
        priority: str | None,
        assignee: str | None,
        due_ms: int | None,
        until: int | None,
        late_ms: int | None,
    ) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        due = None if due_ms is None else self.now_ms + due_ms
        until_ms = None if until is None else self.now_ms + until
        given: dict[str, Any] = {"assignee": assignee} | ({"priority": priority} if priority else {})
        moments: Any = {"due_date": self.moment(due), "valid_until": self.moment(until_ms), "at": self.moment(at_ms)}

        def call() -> Any:
            return self.apollo.tasks.update(item.id, **moments, **given)

        if until_ms is not None and until_ms < item.begun_ms:
            self.refused(InvalidItem, call)
        elif not self.is_too_early(item, at_ms, call):
            moment_ms = self.moment_of(item, at_ms)
            record = call()
            item.happen(moment_ms, self.now_ms, sets(due_date=due, said_until=until_ms, **given))
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
        then, path = item.with_one_more(moment_ms, sets(status=status))
        if not legal(WAYS, path):
            self.refused(InvalidTransition, call)
            return
        is_done = then["status"] == "completed"
        waiting = [other for other in self.living() if is_done and item.id in other.now["blocked_by"]]
        times = {other.id: self.moment_of(other, None) for other in waiting}
        record = call()
        item.happen(moment_ms, self.now_ms, sets(status=status))
        for other in waiting:
            other.happen(times[other.id], self.now_ms, drops("blocked_by", item.id))
        self.compare(record, item.now)

    @rule(place=PLACES, by=st.sampled_from(["a review", "a key"]) | PLACES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def block(self, place: int, by: str | int, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        other = self.pick(by) if isinstance(by, int) else None
        blocker = by if isinstance(by, str) else self.pick(by).id

        def call() -> Any:
            return self.apollo.tasks.block(item.id, blocker, at=self.moment(at_ms))

        if self.is_too_early(item, at_ms, call):
            return
        moment_ms, change = self.moment_of(item, at_ms), both(sets(status="blocked"), adds("blocked_by", blocker))
        then, path = item.with_one_more(moment_ms, change)
        is_done = other is not None and other.now["status"] in DONE and other.id in then["blocked_by"]
        if not legal(WAYS, path):
            self.refused(InvalidTransition, call)
        elif is_done or blocker == item.id:
            self.refused(InvalidItem, call)
        else:
            record = call()
            item.happen(moment_ms, self.now_ms, change)
            self.compare(record, item.now)

    @rule(place=PLACES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def unblock(self, place: int, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)

        def call() -> Any:
            return self.apollo.tasks.unblock(item.id, at=self.moment(at_ms))

        if (item.as_of(at_ms) or item.now)["status"] != "blocked":
            self.refused(InvalidTransition, call)
        elif not self.is_too_early(item, at_ms, call):
            moment_ms = self.moment_of(item, at_ms)
            if not legal(WAYS, item.path_with(moment_ms, blocked_by=[])):
                self.refused(InvalidTransition, call)
                return
            record = call()
            item.happen(moment_ms, self.now_ms, sets(blocked_by=[]))
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

    @rule(place=PLACES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def delete(self, place: int, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        if self.is_too_early(item, at_ms, lambda: self.apollo.tasks.delete(item.id, at=self.moment(at_ms))):
            return
        others = []
        moment_ms = self.moment_of(item, at_ms)
        for other in self.living():
            names = [name for name in ("dependencies", "blocked_by") if item.id in other.now[name]]
            if names and other.id != item.id:
                others.append((other, self.moment_of(other, None), names))
        self.apollo.tasks.delete(item.id, at=self.moment(at_ms))
        for other, other_ms, names in others:
            other.happen(other_ms, self.now_ms, both(*(drops(name, item.id) for name in names)))
        item.happen(moment_ms, self.now_ms, sets(deleted=True))

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

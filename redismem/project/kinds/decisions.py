"""Decisions of a project."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from redismem.errors import CorruptSession, InvalidItem
from redismem.project.items import fields as checks
from redismem.project.items.items import ItemChange, StoredItem
from redismem.project.items.records import Decision, Page
from redismem.project.items.schema import DECISION, DecisionStatus
from redismem.project.kinds.collection import Collection
from redismem.project.queries.query import DecisionCriteria


class DecisionDetails(TypedDict, total=False):
    """The fields of a decision besides its title."""

    description: str
    rationale: str
    context: str
    alternatives: Sequence[str]
    consequences: Sequence[str]
    tags: Sequence[str]
    valid_until: datetime | None


class DecisionFields(DecisionDetails, total=False):
    """The fields that an update of a decision may set."""

    title: str


class DecisionQuery(DecisionCriteria, total=False):
    """The arguments of `list` and `count`; `at` and `known_at` select an earlier moment."""

    at: datetime
    known_at: datetime


class Decisions(Collection[Decision]):
    """The decisions of a project, newest first."""

    kind = DECISION
    record = Decision

    async def create(
        self,
        title: str,
        *,
        status: DecisionStatus = "proposed",
        related_decisions: Sequence[str] = (),
        related_tasks: Sequence[str] = (),
        at: datetime | None = None,
        **fields: Unpack[DecisionDetails],
    ) -> Decision:
        """Create a decision, proposed or accepted. `at` is when it became true, now by default.

        Raises InvalidItem, TooLarge; ItemNotFound for a missing linked item.
        """
        others = await self._load_others(_related(related_decisions, related_tasks), at)
        change = await self._items.change()
        created = self._create_in(change, title, status, at, others, fields)
        return self._to_record(await change.commit(), created)

    async def update(
        self, id: str, *, expect: int | None = None, at: datetime | None = None, **fields: Unpack[DecisionFields]
    ) -> Decision:
        """Set these fields. `expect` is the version that the caller has seen.

        Raises ItemNotFound, InvalidItem, TooLarge, Conflict.
        """
        return await self._update_fields(id, fields, expect, at)

    async def accept(
        self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None
    ) -> Decision:
        """Accept a proposed decision. Raises ItemNotFound, InvalidTransition, Conflict."""
        return await self._change_status(id, "accepted", reason, expect, at)

    async def reject(
        self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None
    ) -> Decision:
        """Reject a proposed or accepted decision, which ends its validity. Raises like `accept`."""
        return await self._change_status(id, "rejected", reason, expect, at)

    async def deprecate(
        self, id: str, reason: str = "", *, expect: int | None = None, at: datetime | None = None
    ) -> Decision:
        """Deprecate a proposed or accepted decision, which ends its validity. Raises like `accept`."""
        return await self._change_status(id, "deprecated", reason, expect, at)

    async def supersede(
        self,
        id: str,
        by: str | None = None,
        *,
        reason: str = "",
        expect: int | None = None,
        at: datetime | None = None,
        title: str = "",
        status: DecisionStatus = "accepted",
        **fields: Unpack[DecisionDetails],
    ) -> Decision:
        """Supersede a decision in one step, by `by` or by a new decision with these fields. Return the successor.

        The validity of the old decision ends, unless it has ended before, and the decisions are linked. Raises
        ItemNotFound, InvalidItem, Conflict, and InvalidTransition if the decision is superseded already.
        """
        if (by is None) == (title == "" and not fields):
            raise InvalidItem("pass either `by`, or the fields of a new decision")
        stored, at_ms = await self._open(id, expect, at)
        change = await self._items.change()
        if by is None:
            new_id = self._create_in(change, title, status, at, [], fields, {"supersedes": id})
        else:
            new_id = by
            (new,) = await self._load_others([self._id(by)], at)
            if by == id or new.state["supersedes"] or new.state["superseded_by"]:
                raise InvalidItem(f"{by} is already part of a chain of decisions")
            change.alter(new, at_ms, sets={"supersedes": id})
        change.alter(stored, at_ms, sets={"status": "superseded", "superseded_by": new_id}, reason=reason)
        return self._to_record(await change.commit(), new_id)

    async def history(self, id: str, *, at: datetime | None = None) -> Sequence[Decision]:
        """Return the chain of decisions that contains this one, oldest first, now or as of a moment.

        Takes one round trip per decision. Raises ItemNotFound, and CorruptSession if the chain contains a cycle.
        """
        middle = await self.get(id, at=at)
        seen = {middle.id}
        older = [each async for each in self._follow_chain("supersedes", middle, at, seen)]
        newer = [each async for each in self._follow_chain("superseded_by", middle, at, seen)]
        return [*reversed(older), middle, *newer]

    async def active(self, *, limit: int = 100, cursor: str | None = None) -> Page[Decision]:
        """Return the accepted decisions that are not superseded."""
        return await self._list({"status": "accepted"}, limit, cursor)

    async def list(
        self, *, limit: int = 100, cursor: str | None = None, **criteria: Unpack[DecisionQuery]
    ) -> Page[Decision]:
        """Return matching decisions, newest first. Superseded decisions come only on request. Raises InvalidItem."""
        return await self._list(criteria, limit, cursor)

    async def count(self, **criteria: Unpack[DecisionQuery]) -> int:
        """Count the matching decisions. Reads each of them."""
        return await self._count(criteria)

    async def link_task(self, id: str, task_id: str, *, at: datetime | None = None) -> Decision:
        """Link a decision and a task in both directions. Raises ItemNotFound, Conflict."""
        return await self._link(id, "related_tasks", task_id, at)

    async def unlink_task(self, id: str, task_id: str, *, at: datetime | None = None) -> Decision:
        """Remove the link between a decision and a task. Raises ItemNotFound, Conflict."""
        return await self._link(id, "related_tasks", task_id, at, ends=True)

    async def link_decision(self, id: str, other_id: str, *, at: datetime | None = None) -> Decision:
        """Link two decisions in both directions. Raises ItemNotFound, Conflict."""
        return await self._link(id, "related_decisions", other_id, at)

    async def unlink_decision(self, id: str, other_id: str, *, at: datetime | None = None) -> Decision:
        """Remove the link between two decisions. Raises ItemNotFound, Conflict."""
        return await self._link(id, "related_decisions", other_id, at, ends=True)

    async def _follow_chain(
        self, name: str, decision: Decision, at: datetime | None, seen: set[str]
    ) -> AsyncIterator[Decision]:
        """Yield the decisions in one direction of the chain. Raises CorruptSession if the chain contains a cycle."""
        while (following := getattr(decision, name)) is not None and await self.exists(following, at=at):
            if following in seen:
                place = f"item {decision.id} of project {self._items.keys.name}"
                raise CorruptSession(f"{place}: its chain leads back to {following}, a circle")
            seen.add(following)
            decision = await self.get(following, at=at)
            yield decision

    def _create_in(
        self,
        change: ItemChange,
        title: str,
        status: DecisionStatus,
        at: datetime | None,
        others: Sequence[StoredItem],
        fields: Mapping[str, Any],
        links: dict[str, str] | None = None,
    ) -> str:
        sets = self.kind.check_fields({"title": title, **fields})
        sets["status"] = checks.choice(*self.kind.begins)(status, "status")
        for other in others:
            name = "related_tasks" if other.kind.letter == "t" else "related_decisions"
            sets.setdefault(name, []).append(other.id)
        at_ms = None if at is None else checks.moment(at, "at")
        new_id = change.create(self.kind, sets | (links or {}), at_ms)
        for other in others:
            change.alter(other, at_ms, adds={"related_decisions": [new_id]})
        return new_id


def _related(decision_ids: Sequence[str], task_ids: Sequence[str]) -> list[str]:
    decisions: list[str] = checks.item_ids("d")(decision_ids, "related_decisions")
    tasks: list[str] = checks.item_ids("t")(task_ids, "related_tasks")
    return decisions + tasks

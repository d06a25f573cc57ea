"""What a caller gets: decisions, tasks, entities and conversations as they were at the moment that was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from redismem.project.items.fields import as_datetime
from redismem.project.items.schema import EntityType, Priority
from redismem.project.items.versions import State


class StatusChange(NamedTuple):
    """A status that an item came to, since when, and why."""

    status: str
    at: datetime
    reason: str


class Mention(NamedTuple):
    """A place where an entity was spoken of."""

    context: str
    at: datetime
    source: str


class Relation(NamedTuple):
    """A link between two entities, as seen from one of them. `outgoing`: it leads from this one to the other."""

    name: str
    entity_id: str
    outgoing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What all items have. `version` counts its changes; what it was before is still known: `get(id, at=…)`."""

    id: str
    version: int
    created_at: datetime
    """When it was written down first."""
    updated_at: datetime
    """When it was last changed."""
    valid_from: datetime
    """Since when it is true."""
    valid_until: datetime | None
    """Until when it was true; None: it still is."""
    tags: tuple[str, ...]
    archived: bool

    @property
    def is_valid(self) -> bool:
        """Whether it is true now, by this machine's clock."""
        return self.valid_at(datetime.now(UTC))

    def valid_at(self, moment: datetime) -> bool:
        """Whether it was true at that moment, as far as this version of it knows."""
        return self.valid_from <= moment and (self.valid_until is None or moment < self.valid_until)

    @classmethod
    def of(cls, item_id: str, state: State) -> Self:
        """The record of a state."""
        found = {name: _public(name, state[name]) for name in _FIELDS[cls]}
        for name, number in _TIMES.items():
            found[name] = as_datetime(state[number])
        return cls(id=item_id, **found)


_TIMES = {"created_at": "created_ms", "updated_at": "updated_ms", "valid_from": "valid_from_ms"}
_MOMENTS = frozenset({"valid_until", "due_date", "completed_at", "ended_at"})


def _public(name: str, value: Any) -> Any:
    if name in _MOMENTS:
        return None if value is None else as_datetime(value)
    if name == "history":
        return tuple(StatusChange(status, as_datetime(at_ms), reason) for status, at_ms, reason in value)
    if name == "mentions":
        return tuple(Mention(context, as_datetime(at_ms), source) for context, at_ms, source in value)
    if name == "relations":
        return tuple(Relation(*each) for each in value)
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Item):
    """What was decided, why, and what became of it."""

    title: str
    description: str
    rationale: str
    context: str
    status: str
    """proposed, accepted, rejected, superseded, deprecated"""
    alternatives: tuple[str, ...]
    consequences: tuple[str, ...]
    related_decisions: tuple[str, ...]
    related_tasks: tuple[str, ...]
    supersedes: str | None
    """The decision in whose place it came."""
    superseded_by: str | None
    """The decision that came in its place."""
    history: tuple[StatusChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Item):
    """What is to be done, by whom, until when, and what it waits for."""

    title: str
    description: str
    status: str
    """backlog, planned, in_progress, blocked, completed, cancelled"""
    priority: Priority
    assignee: str | None
    due_date: datetime | None
    completed_at: datetime | None
    dependencies: tuple[str, ...]
    """The tasks that must be completed before it can start."""
    blocked_by: tuple[str, ...]
    """What it waits for while it is blocked: texts, or ids of tasks."""
    related_decisions: tuple[str, ...]
    history: tuple[StatusChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity(Item):
    """Whom or what a project is about."""

    name: str
    type: EntityType
    description: str
    properties: dict[str, Any]
    aliases: tuple[str, ...]
    """Other names that find it: of the entities that were merged into it."""
    mentions: tuple[Mention, ...]
    """The last 100, oldest first; the older ones stand in its versions."""
    mention_count: int
    relations: tuple[Relation, ...]
    merged_into: str | None
    """The entity that it turned out to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Item):
    """What stays of a conversation. Its messages are a session of the memory, and end as one does."""

    title: str
    summary: str
    ended_at: datetime | None
    extracted: tuple[str, ...]
    """Ids of the items that were made or changed by what was said in it."""
    message_count: int
    """How many messages its session had when it ended; 0 before, and if they were gone by then."""
    extraction: str | None
    """due, claimed, done, failed: whether items were made of it; None: nobody asked for it"""


T_co = TypeVar("T_co", covariant=True)


class Page(Sequence[T_co], Generic[T_co]):
    """A part of what a query found, in its order. `cursor` gets the next part; None: there is no more."""

    __slots__ = ("_items", "cursor")

    def __init__(self, items: Sequence[T_co], cursor: str | None) -> None:
        self._items = tuple(items)
        self.cursor = cursor

    @overload
    def __getitem__(self, at: int) -> T_co: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T_co]: ...
    def __getitem__(self, at: int | slice) -> T_co | Sequence[T_co]:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._items)

    def __repr__(self) -> str:
        return f"<Page of {len(self._items)}, {'the last' if self.cursor is None else 'more follow'}>"


_FIELDS: dict[type[Item], tuple[str, ...]] = {
    kind: tuple(each.name for each in dataclasses.fields(kind) if each.name != "id" and each.name not in _TIMES)
    for kind in (Decision, Task, Entity, Conversation)
}

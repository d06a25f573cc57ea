"""Records returned to callers: decisions, tasks, entities and conversations as of the requested moment."""

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
    """A status of an item, when it began, and the reason."""

    status: str
    at: datetime
    reason: str


class Mention(NamedTuple):
    """A mention of an entity: its context, time and source."""

    context: str
    at: datetime
    source: str


class Relation(NamedTuple):
    """A relation between two entities. `outgoing` means that it leads from this entity to the other one."""

    name: str
    entity_id: str
    outgoing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The fields of every item. `version` counts its changes; earlier states remain readable: `get(id, at=…)`."""

    id: str
    version: int
    created_at: datetime
    """When the item was first stored."""
    updated_at: datetime
    """When the item was last changed."""
    valid_from: datetime
    """When the item became true."""
    valid_until: datetime | None
    """When the item ceased to be true; `None` means that it is still true."""
    tags: tuple[str, ...]
    archived: bool

    @property
    def is_valid(self) -> bool:
        """True if the item is true now, by this machine's clock."""
        return self.valid_at(datetime.now(UTC))

    def valid_at(self, moment: datetime) -> bool:
        """True if the item was true at that moment, as far as this record says."""
        return self.valid_from <= moment and (self.valid_until is None or moment < self.valid_until)

    @classmethod
    def of(cls, item_id: str, state: State) -> Self:
        """Create the record of a state."""
        values = {name: _public(name, state[name]) for name in _FIELDS[cls]}
        for name, number in _TIMES.items():
            values[name] = as_datetime(state[number])
        return cls(id=item_id, **values)


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
    """A decision, its rationale and its status."""

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
    """The decision that this one replaced."""
    superseded_by: str | None
    """The decision that replaced this one."""
    history: tuple[StatusChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Item):
    """A task, its assignee, due date and blockers."""

    title: str
    description: str
    status: str
    """backlog, planned, in_progress, blocked, completed, cancelled"""
    priority: Priority
    assignee: str | None
    due_date: datetime | None
    completed_at: datetime | None
    dependencies: tuple[str, ...]
    """The tasks that must be completed before this one can start."""
    blocked_by: tuple[str, ...]
    """The blockers while the task is blocked: texts, or ids of tasks."""
    related_decisions: tuple[str, ...]
    history: tuple[StatusChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity(Item):
    """A person or thing that a project is about."""

    name: str
    type: EntityType
    description: str
    properties: dict[str, Any]
    aliases: tuple[str, ...]
    """Other names that find the entity: the names of entities merged into it."""
    mentions: tuple[Mention, ...]
    """The last 100 mentions, oldest first. Older mentions remain in the versions."""
    mention_count: int
    relations: tuple[Relation, ...]
    merged_into: str | None
    """The entity that this one was merged into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Item):
    """The record of a conversation. Its messages are in a session of the memory, and expire with it."""

    title: str
    summary: str
    ended_at: datetime | None
    extracted: tuple[str, ...]
    """Ids of the items created or changed because of the conversation."""
    message_count: int
    """The number of messages when the conversation ended; 0 before that, or if the session had expired."""
    extraction: str | None
    """The status of the extraction: due, claimed, done or failed; `None` means that no extraction was requested."""


T_co = TypeVar("T_co", covariant=True)


class Page(Sequence[T_co], Generic[T_co]):
    """A page of a query's results. Pass `cursor` to get the next page; `None` means that this page is the last."""

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

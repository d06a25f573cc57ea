"""The kinds of items: their fields, checks and status transitions."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from redismem.errors import InvalidItem
from redismem.project.items import fields as checks
from redismem.project.items.fields import Check

DecisionStatus = Literal["proposed", "accepted", "rejected", "superseded", "deprecated"]
TaskStatus = Literal["backlog", "planned", "in_progress", "blocked", "completed", "cancelled"]
Priority = Literal["critical", "high", "medium", "low"]
EntityType = Literal["person", "technology", "component", "service", "concept", "other"]

PRIORITIES = ("low", "medium", "high", "critical")
ENTITY_TYPES = ("person", "technology", "component", "service", "concept", "other")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an item. Callers cannot set a field without a check; methods such as `accept` do."""

    default: Any
    check: Check | None = None
    stored: Check | None = None
    """The check of the stored form; `None` means that it is the form that callers pass."""

    def check_stored(self, value: Any, name: str) -> None:
        """Raise InvalidItem or TooLarge for a value that would not have been stored."""
        check = self.stored or self.check
        assert check is not None
        if check(value, name) != value:
            raise InvalidItem(f"{name} is not in its stored form")


@dataclass(frozen=True, slots=True)
class ItemKind:
    """A kind of item. Its letter is the prefix of its items' ids."""

    letter: str
    name: str
    fields: Mapping[str, Field]
    texts: tuple[str, ...]
    """The fields whose words are indexed."""
    hidden: frozenset[str] = frozenset()
    """The statuses that a query omits by default."""
    begins: tuple[str, ...] = ()
    """The statuses allowed for a new item."""
    ended: frozenset[str] = frozenset()
    """The statuses in which an item is no longer valid."""
    transitions: Mapping[str, frozenset[str]] | None = None

    def defaults(self) -> dict[str, Any]:
        """Return the default values of all fields."""
        return {name: deepcopy(field.default) for name, field in self.fields.items()}

    def check_fields(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check a caller's fields and return their stored form. Raises InvalidItem, TooLarge."""
        checked = {}
        for name, value in given.items():
            field = self.fields.get(name)
            if field is None or field.check is None:
                if not name.isidentifier():
                    raise InvalidItem("no such field")
                near = checks.suggest_name(
                    name, [each for each, field in self.fields.items() if field.check is not None]
                )
                raise InvalidItem(f"no {self.name} has a field {name} to set{near}")
            checked[name] = field.check(value, name)
        return checked


_WHEN = checks.optional(checks.whole)
# Fields of all kinds.
_SHARED = {
    "tags": Field([], checks.tags),
    "valid_until": Field(None, checks.optional(checks.moment), _WHEN),
    "status": Field(None, None, checks.optional(checks.text)),
    "history": Field([], None, checks.entries("history", checks.text, checks.whole, checks.text)),
    "archived": Field(False, None, checks.flag),
    "deleted": Field(False, None, checks.flag),
}

DECISION = ItemKind(
    letter="d",
    name="decision",
    fields=_SHARED
    | {
        "title": Field("", checks.line),
        "description": Field("", checks.text),
        "rationale": Field("", checks.text),
        "context": Field("", checks.text),
        "alternatives": Field([], checks.texts),
        "consequences": Field([], checks.texts),
        "related_decisions": Field([], None, checks.item_ids("d")),
        "related_tasks": Field([], None, checks.item_ids("t")),
        "supersedes": Field(None, None, checks.optional(checks.item_id("d"))),
        "superseded_by": Field(None, None, checks.optional(checks.item_id("d"))),
    },
    texts=("title", "description", "rationale", "context"),
    hidden=frozenset({"superseded"}),
    begins=("proposed", "accepted"),
    ended=frozenset({"rejected", "superseded", "deprecated"}),
    transitions={
        "proposed": frozenset({"accepted", "rejected", "superseded", "deprecated"}),
        "accepted": frozenset({"rejected", "superseded", "deprecated"}),
        "rejected": frozenset(),
        "superseded": frozenset(),
        "deprecated": frozenset({"superseded"}),
    },
)

TASK = ItemKind(
    letter="t",
    name="task",
    fields=_SHARED
    | {
        "title": Field("", checks.line),
        "description": Field("", checks.text),
        "priority": Field("medium", checks.choice(*PRIORITIES[::-1])),
        "assignee": Field(None, checks.optional(checks.tag_like)),
        "due_date": Field(None, checks.optional(checks.moment), _WHEN),
        "completed_at": Field(None, None, _WHEN),
        "dependencies": Field([], None, checks.item_ids("t")),
        "blocked_by": Field([], None, checks.texts),
        "related_decisions": Field([], None, checks.item_ids("d")),
    },
    texts=("title", "description"),
    hidden=frozenset({"completed", "cancelled"}),
    begins=("backlog", "planned", "in_progress"),
    ended=frozenset({"completed", "cancelled"}),
    transitions={
        "backlog": frozenset({"planned", "in_progress", "blocked", "cancelled"}),
        "planned": frozenset({"backlog", "in_progress", "blocked", "cancelled"}),
        "in_progress": frozenset({"backlog", "planned", "blocked", "completed", "cancelled"}),
        "blocked": frozenset({"backlog", "planned", "in_progress", "blocked", "cancelled"}),
        "completed": frozenset({"backlog"}),
        "cancelled": frozenset({"backlog"}),
    },
)

ENTITY = ItemKind(
    letter="e",
    name="entity",
    fields=_SHARED
    | {
        "name": Field("", checks.line),
        "type": Field("other", checks.choice(*ENTITY_TYPES)),
        "description": Field("", checks.text),
        "properties": Field({}, checks.properties),
        "aliases": Field([], None, checks.texts),
        "mentions": Field([], None, checks.entries("mentions", checks.text, checks.whole, checks.text)),
        "mention_count": Field(0, None, checks.whole),
        "relations": Field([], None, checks.entries("relations", checks.tag_like, checks.item_id("e"), checks.flag)),
        "merged_into": Field(None, None, checks.optional(checks.item_id("e"))),
    },
    texts=("name", "description"),
)

CONVERSATION = ItemKind(
    letter="c",
    name="conversation",
    fields=_SHARED
    | {
        "title": Field("", checks.text),
        "summary": Field("", checks.text),
        "ended_at": Field(None, None, _WHEN),
        "extracted": Field([], None, checks.every(checks.text)),
        "message_count": Field(0, None, checks.whole),
        "extraction": Field(None, None, checks.optional(checks.choice("due", "claimed", "done", "failed"))),
        "due_ms": Field(None, None, _WHEN),
        "attempts": Field(0, None, checks.whole),
        "failing_ms": Field(None, None, _WHEN),
        "read_seq": Field(0, None, checks.whole),
    },
    texts=("title", "summary"),
)

KINDS = {kind.letter: kind for kind in (DECISION, TASK, ENTITY, CONVERSATION)}


def kind_of(item_id: str) -> ItemKind:
    """Return the kind of an item by its id. Raises InvalidItem if it is not an id."""
    kind = KINDS.get(item_id[:1]) if isinstance(item_id, str) else None
    if kind is None:
        raise InvalidItem(f"this is no id of an item, which begins with {', '.join(f'{letter}-' for letter in KINDS)}")
    checks.item_id(kind.letter)(item_id, "the id")
    return kind

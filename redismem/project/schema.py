"""The kinds of items: which fields each has, what stands in them, and which status leads to which."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from redismem.errors import InvalidItem
from redismem.project import checks
from redismem.project.checks import Check

DecisionStatus = Literal["proposed", "accepted", "rejected", "superseded", "deprecated"]
TaskStatus = Literal["backlog", "planned", "in_progress", "blocked", "completed", "cancelled"]
Priority = Literal["critical", "high", "medium", "low"]
EntityType = Literal["person", "technology", "component", "service", "concept", "other"]

PRIORITIES = ("low", "medium", "high", "critical")
ENTITY_TYPES = ("person", "technology", "component", "service", "concept", "other")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an item. What has no check is set by the verbs alone."""

    default: Any
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of items. Its letter begins the ids of its items."""

    letter: str
    name: str
    fields: Mapping[str, Field]
    texts: tuple[str, ...]
    """The fields whose words are found."""
    hidden: frozenset[str] = frozenset()
    """The statuses that a query leaves out unless it asks for them."""
    ended: frozenset[str] = frozenset()
    """The statuses with which an item is valid no longer."""
    transitions: Mapping[str, frozenset[str]] | None = None

    def defaults(self) -> dict[str, Any]:
        """An item's fields before anything is known of it."""
        return {name: deepcopy(field.default) for name, field in self.fields.items()}

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a caller gave, as it is stored. Raises InvalidItem, TooLarge."""
        found = {}
        for name, value in given.items():
            field = self.fields.get(name)
            if field is None or field.check is None:
                raise InvalidItem(
                    f"a {self.name} has no field {name} to set" if name.isidentifier() else "no such field"
                )
            found[name] = field.check(value, name)
        return found


# What all kinds have.
_SHARED = {
    "tags": Field([], checks.tags),
    "valid_until": Field(None, checks.optional(checks.moment)),
    "status": Field(None),
    "history": Field([]),
    "archived": Field(False),
    "deleted": Field(False),
}

DECISION = Kind(
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
        "related_decisions": Field([]),
        "related_tasks": Field([]),
        "supersedes": Field(None),
        "superseded_by": Field(None),
    },
    texts=("title", "description", "rationale", "context"),
    hidden=frozenset({"superseded"}),
    ended=frozenset({"rejected", "superseded", "deprecated"}),
    transitions={
        "proposed": frozenset({"accepted", "rejected", "superseded", "deprecated"}),
        "accepted": frozenset({"rejected", "superseded", "deprecated"}),
        "rejected": frozenset(),
        "superseded": frozenset(),
        "deprecated": frozenset({"superseded"}),
    },
)

TASK = Kind(
    letter="t",
    name="task",
    fields=_SHARED
    | {
        "title": Field("", checks.line),
        "description": Field("", checks.text),
        "priority": Field("medium", checks.choice(*PRIORITIES[::-1])),
        "assignee": Field(None, checks.optional(checks.tag_like)),
        "due_date": Field(None, checks.optional(checks.moment)),
        "completed_at": Field(None),
        "dependencies": Field([]),
        "blocked_by": Field([]),
        "related_decisions": Field([]),
    },
    texts=("title", "description"),
    hidden=frozenset({"completed", "cancelled"}),
    ended=frozenset({"completed", "cancelled"}),
    transitions={
        "backlog": frozenset({"planned", "in_progress", "blocked", "cancelled"}),
        "planned": frozenset({"backlog", "in_progress", "blocked", "cancelled"}),
        "in_progress": frozenset({"backlog", "planned", "blocked", "completed", "cancelled"}),
        "blocked": frozenset({"backlog", "planned", "in_progress", "cancelled"}),
        "completed": frozenset({"backlog"}),
        "cancelled": frozenset({"backlog"}),
    },
)

ENTITY = Kind(
    letter="e",
    name="entity",
    fields=_SHARED
    | {
        "name": Field("", checks.line),
        "type": Field("other", checks.choice(*ENTITY_TYPES)),
        "description": Field("", checks.text),
        "properties": Field({}, checks.properties),
        "aliases": Field([]),
        "mentions": Field([]),
        "mention_count": Field(0),
        "relations": Field([]),
        "merged_into": Field(None),
    },
    texts=("name", "description"),
)

CONVERSATION = Kind(
    letter="c",
    name="conversation",
    fields=_SHARED
    | {
        "title": Field("", checks.text),
        "summary": Field("", checks.text),
        "ended_at": Field(None),
        "extracted": Field([]),
        "message_count": Field(0),
        "extraction": Field(None),
        "due_ms": Field(None),
        "attempts": Field(0),
        "failing_ms": Field(None),
        "read_seq": Field(0),
    },
    texts=("title", "summary"),
)

KINDS = {kind.letter: kind for kind in (DECISION, TASK, ENTITY, CONVERSATION)}


def kind_of(item_id: str) -> Kind:
    """The kind of an item, by its id. Raises InvalidItem for what is no id."""
    kind = KINDS.get(item_id[:1]) if isinstance(item_id, str) else None
    if kind is None:
        raise InvalidItem("this is no id of an item")
    checks.item_id(kind.letter)(item_id, "the id")
    return kind

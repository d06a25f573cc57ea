"""The request documents of the project routes, for OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictStr, WithJsonSchema, model_validator

from redismem.project.items import fields
from redismem.project.items.schema import EntityType, Priority, TaskStatus
from redismem.web.api.schemas import Taken


def _parse(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("a time with its zone (RFC 3339)")
    return moment


Moment = Annotated[
    StrictStr,
    Field(max_length=64),
    AfterValidator(_parse),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 64}),
]
"""A time in RFC 3339, which is a datetime once it is checked."""
Line = Annotated[str, Field(min_length=1, max_length=fields.LINE_CHARS)]
Word = Annotated[str, Field(min_length=1, max_length=fields.TAG_CHARS)]
Text = Annotated[str, Field(max_length=fields.TEXT_BYTES)]
Texts = Annotated[list[Text], Field(max_length=fields.LIST_COUNT)]
Words = Annotated[list[Word], Field(max_length=fields.LIST_COUNT)]
ItemId = Annotated[str, Field(min_length=1, max_length=64)]
ItemIds = Annotated[list[ItemId], Field(max_length=fields.LIST_COUNT)]
Facts = Annotated[dict[Word, Any], Field(max_length=fields.LIST_COUNT)]
Reason = Annotated[str, Field(max_length=fields.REASON_CHARS)]
Expect = Annotated[int, Field(ge=1, le=1 << 53)]


class _Given(Taken):
    """A body whose absent members are not passed on."""

    def sent_fields(self, *but: str) -> dict[str, Any]:
        """Return the members that the client sent, but for these."""
        return {name: getattr(self, name) for name in type(self).model_fields if self._is_given(name, but)}

    def _is_given(self, name: str, but: tuple[str, ...]) -> bool:
        return name in self.model_fields_set and name not in but


class _NewItem(_Given):
    tags: Words = Field(default=[])
    valid_from: Moment | None = None

    def fields(self, *but: str) -> dict[str, Any]:
        """Return the arguments of `create`."""
        given = self.sent_fields("valid_from", *but)
        return given if self.valid_from is None else given | {"at": self.valid_from}


class NewDecision(_NewItem):
    """A decision to record. With `supersedes` it replaces the decision of this id, which ends; `reason` says why.

    It is true from `valid_from`, now by default.
    """

    title: Line
    status: Literal["proposed", "accepted"] = "accepted"
    description: Text = ""
    rationale: Text = ""
    context: Text = ""
    alternatives: Texts = Field(default=[])
    consequences: Texts = Field(default=[])
    valid_until: Moment | None = None
    related_decisions: ItemIds = Field(default=[])
    related_tasks: ItemIds = Field(default=[])
    supersedes: ItemId | None = None
    reason: Reason = ""

    @model_validator(mode="after")
    def _check_superseding(self) -> NewDecision:
        if self.supersedes is None and self.reason:
            raise ValueError("reason says why a decision is superseded: name it")
        if self.supersedes is not None and (self.related_decisions or self.related_tasks):
            raise ValueError("link a decision that supersedes another one once it is recorded")
        return self


class NewTask(_NewItem):
    """A task to record, by default in the backlog. The project exists from its first item on."""

    title: Line
    status: Literal["backlog", "planned", "in_progress"] = "backlog"
    description: Text = ""
    priority: Priority = "medium"
    assignee: Word | None = None
    due_date: Moment | None = None
    valid_until: Moment | None = None
    dependencies: ItemIds = Field(default=[])
    related_decisions: ItemIds = Field(default=[])


class NewEntity(_NewItem):
    """A person or thing to record. If the name is known, in any case, its missing fields are filled in.

    Fields that have a value stay as they are. `properties` are facts, by name.
    """

    name: Line
    type: EntityType = "other"
    description: Text = ""
    properties: Facts = Field(default={})


class _ItemChange(_Given):
    expect: Expect | None = None
    at: Moment | None = None

    def options(self) -> dict[str, Any]:
        """Return the arguments that say which version the caller has seen, and when the change became true."""
        given = {"expect": self.expect, "at": self.at}
        return {name: value for name, value in given.items() if value is not None}


class DecisionChange(_ItemChange):
    """The fields to set. `expect` is the version that the caller has seen; `at` is when the change became true."""

    title: Line = ""
    description: Text = ""
    rationale: Text = ""
    context: Text = ""
    alternatives: Texts = Field(default=[])
    consequences: Texts = Field(default=[])
    tags: Words = Field(default=[])
    valid_until: Moment | None = None


class TaskChange(_ItemChange):
    """The fields to set. `expect` is the version that the caller has seen; `at` is when the change became true."""

    title: Line = ""
    description: Text = ""
    priority: Priority = "medium"
    assignee: Word | None = None
    due_date: Moment | None = None
    tags: Words = Field(default=[])
    valid_until: Moment | None = None


class EntityChange(_ItemChange):
    """The fields to set. `properties` replaces all of them; a single one has a route of its own."""

    name: Line = ""
    type: EntityType = "other"
    description: Text = ""
    properties: Facts = Field(default={})
    tags: Words = Field(default=[])
    valid_until: Moment | None = None


class DecisionStatusChange(_ItemChange):
    """A change of a decision's status. `superseded_by` is the decision that replaces it, with `superseded` alone."""

    status: Literal["accepted", "rejected", "deprecated", "superseded"]
    reason: Reason = ""
    superseded_by: Annotated[str, Field(max_length=64)] = ""


class StatusChange(_ItemChange):
    """A change of a task's status. `unblocked` restores the status from before the task was blocked.

    `blocked_by` says what a blocked task waits for: a text, or the id of a task. `expect` is the version that the
    caller has seen; another version is a conflict. A task that has the status stays as it is.
    """

    status: TaskStatus | Literal["unblocked"]
    reason: Reason = ""
    blocked_by: Annotated[str, Field(max_length=fields.LINE_CHARS)] = ""


class NewMention(Taken):
    """A mention of an entity: what was said of it, and where, such as the id of a session."""

    context: Text
    source: Text = ""
    at: Moment | None = None


class PropertyValue(_ItemChange):
    """A fact of an entity: any JSON value."""

    value: Any


class Duplicate(Taken):
    """The id of the entity that is the same person or thing, and ends."""

    duplicate: ItemId

"""The request and response documents of the project routes, for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from redismem.web.api.schemas import Taken


class ProjectList(BaseModel):
    projects: list[str]


class ItemDocument(BaseModel):
    """A decision, task or entity, with the fields of its kind. Send its `version` as `expect`.

    `hidden_properties` are the properties of an entity that are named like a sensitive param: their values are null.
    """

    model_config = ConfigDict(extra="allow")
    id: str
    version: int
    created_at: str
    updated_at: str
    valid_from: str
    valid_until: str | None
    tags: list[str]
    archived: bool


class ItemList(BaseModel):
    """`cursor` requests the next page; null means there is no next page."""

    items: list[ItemDocument]
    cursor: str | None


class ProjectLife(BaseModel):
    """The times of the first and last change of the project's items; null if it has no items."""

    name: str
    first_at: str | None
    last_at: str | None


class BoardColumn(BaseModel):
    """The tasks of one status. `more` is true if there are more tasks than the limit."""

    status: str
    items: list[ItemDocument]
    more: bool


class Board(BaseModel):
    columns: list[BoardColumn]


class VersionDocument(BaseModel):
    """One change of an item. It became true at `at`, and was written at `known_at`. `fields` are the changed fields."""

    version: int
    at: str
    known_at: str
    fields: list[str]
    reason: str


class VersionList(BaseModel):
    versions: list[VersionDocument]


class LinkList(BaseModel):
    """The title or name of each item that an item refers to, by id."""

    links: dict[str, str]


class ProjectContextDocument(BaseModel):
    text: str
    summary: dict[str, int]


class NewTask(Taken):
    """A task to create in the backlog. The project exists from its first item on."""

    title: Annotated[str, Field(min_length=1, max_length=300)]
    description: Annotated[str, Field(max_length=20_000)] = ""
    priority: Literal["low", "medium", "high", "critical"] = "medium"
    assignee: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class StatusChange(Taken):
    """A change of a task's status. `unblocked` restores the status from before the task was blocked.

    `blocked_by` says what a blocked task waits for. `expect` is the version that the caller has seen; another version
    is a conflict.
    """

    status: Literal["backlog", "planned", "in_progress", "blocked", "unblocked", "completed", "cancelled"]
    reason: Annotated[str, Field(max_length=1_000)] = ""
    blocked_by: Annotated[str, Field(max_length=300)] = ""
    expect: Annotated[int, Field(ge=1, le=1 << 53)] | None = None

"""What the routes of projects take and answer, for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from redismem.web.api.schemas import Taken


class ProjectList(BaseModel):
    projects: list[str]


class ItemDocument(BaseModel):
    """A decision, task or entity, with the fields of its kind. `version` is what `expect` is compared with.

    An entity's `hidden_properties` have the name of a param that is sensitive: their values are shown as null.
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
    """`cursor` asks for what follows; null: nothing does."""

    items: list[ItemDocument]
    cursor: str | None


class ProjectLife(BaseModel):
    """From when to when its decisions, tasks and entities changed; null: it has none."""

    name: str
    first_at: str | None
    last_at: str | None


class BoardColumn(BaseModel):
    """`more`: whether there are more tasks of this status than were asked for."""

    status: str
    items: list[ItemDocument]
    more: bool


class Board(BaseModel):
    columns: list[BoardColumn]


class VersionDocument(BaseModel):
    """One change: since when it is true, when it was written, which fields it changed, and why."""

    version: int
    at: str
    known_at: str
    fields: list[str]
    reason: str


class VersionList(BaseModel):
    versions: list[VersionDocument]


class LinkList(BaseModel):
    """The title or name of each item that an item names, by its id."""

    links: dict[str, str]


class ProjectContextDocument(BaseModel):
    text: str
    summary: dict[str, int]


class StatusChange(Taken):
    """`unblocked`: the status that it had before it was blocked. `blocked_by`: what a task that becomes blocked waits
    for. `expect`: the version that the caller has seen.
    """

    status: Literal["backlog", "planned", "in_progress", "blocked", "unblocked", "completed", "cancelled"]
    reason: Annotated[str, Field(max_length=1_000)] = ""
    blocked_by: Annotated[str, Field(max_length=300)] = ""
    expect: Annotated[int, Field(ge=1, le=1 << 53)] | None = None

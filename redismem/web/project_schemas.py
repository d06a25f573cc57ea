"""What the routes of projects take and answer, for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from redismem.web.schemas import Taken


class ProjectList(BaseModel):
    projects: list[str]


class ItemDocument(BaseModel):
    """A decision, task or entity, with the fields of its kind. `version` is what `expect` is compared with."""

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


class ProjectContextDocument(BaseModel):
    text: str
    summary: dict[str, int]


class StatusChange(Taken):
    """`blocked_by`: what a task that becomes blocked waits for. `expect`: the version that the caller has seen."""

    status: Literal["backlog", "planned", "in_progress", "blocked", "completed", "cancelled"]
    reason: Annotated[str, Field(max_length=1_000)] = ""
    blocked_by: Annotated[str, Field(max_length=300)] = ""
    expect: Annotated[int, Field(ge=1, le=1 << 53)] | None = None

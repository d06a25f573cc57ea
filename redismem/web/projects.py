"""The routes of projects: what is decided, to be done and known, now or as of a moment; a task's way on a board."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from redismem.inspection.projects import project_names
from redismem.project.project import Project
from redismem.project.records import Item, Page
from redismem.web import project_schemas, schemas
from redismem.web.documents import Json, zoned
from redismem.web.problems import Problem
from redismem.web.sessions import TheMemory, memory_of

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Store = Literal["decisions", "tasks", "entities"]
# What a query may ask of which store.
_ASKED = {"assignee": ("tasks",), "priority": ("tasks",), "type": ("entities",), "status": ("decisions", "tasks")}
_VERBS = {
    "backlog": "reopen",
    "planned": "plan",
    "in_progress": "start",
    "completed": "complete",
    "cancelled": "cancel",
}


def project_of(request: Request, name: Annotated[schemas.ProjectName, Path()]) -> Project:
    """The project that the path names, in the caller's namespace."""
    return memory_of(request).project(name)


def moment_of(at: Annotated[str | None, Query(max_length=64, description="A time (RFC 3339).")] = None) -> Any:
    """As of when; None: now. Raises Problem."""
    return None if at is None else zoned(at, "at is a time with its zone (RFC 3339)")


At = Annotated[datetime | None, Depends(moment_of)]
Word = Annotated[str | None, Query(max_length=64)]


def criteria_of(
    store: Store,
    at: At,
    text: Annotated[str | None, Query(max_length=1_000)] = None,
    tag: Word = None,
    status: Word = None,
    assignee: Word = None,
    priority: Word = None,
    type: Word = None,
) -> dict[str, Any]:
    """What a list is asked for. Raises Problem for what this store does not know."""
    own = {"status": status, "assignee": assignee, "priority": priority, "type": type}
    wrong = sorted(name for name, value in own.items() if value is not None and store not in _ASKED[name])
    if wrong:
        raise Problem("invalid", f"{store} cannot be asked for by {', '.join(wrong)}")
    asked: dict[str, Any] = own | {"text": text, "tags": None if tag is None else [tag], "at": at}
    return {name: value for name, value in asked.items() if value is not None}


TheProject = Annotated[Project, Depends(project_of)]
Criteria = Annotated[dict[str, Any], Depends(criteria_of)]
ItemId = Annotated[str, Path(min_length=1, max_length=64)]


@router.get("", response_model=project_schemas.ProjectList)
async def list_projects(memory: TheMemory) -> Response:
    """The names of the projects, sorted."""
    return Json({"projects": await project_names(memory.store)})


@router.get("/{name}/context", response_model=project_schemas.ProjectContextDocument)
async def read_project_context(
    project: TheProject,
    term: Annotated[list[Annotated[str, Query(max_length=200)]] | None, Query(max_length=20)] = None,
    max_tokens: Annotated[int, Query(ge=50, le=100_000)] = 1_500,
) -> Response:
    """What a prompt should know of the project: its text, and its numbers."""
    found = await project.context(term or ())
    return Json({"text": found.format(max_tokens), "summary": dataclasses.asdict(found.summary)})


@router.get("/{name}/decisions/{item_id}/chain", response_model=project_schemas.ItemList)
async def read_chain(project: TheProject, item_id: ItemId) -> Response:
    """The decisions each of which came in the place of the one before, the oldest first."""
    return _listed(await project.decisions.history(item_id))


@router.get("/{name}/{store}", response_model=project_schemas.ItemList)
async def list_items(
    project: TheProject,
    store: Store,
    criteria: Criteria,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """The items that are so, or were so then, in the order of their kind; what is over only by its status."""
    return _listed(await getattr(project, store).list(limit=limit, cursor=cursor, **criteria))


@router.get("/{name}/{store}/{item_id}", response_model=project_schemas.ItemDocument)
async def read_item(project: TheProject, store: Store, item_id: ItemId, at: At) -> Response:
    """An item, or what it was then."""
    return Json(item_document(await getattr(project, store).get(item_id, at=at)))


@router.post("/{name}/tasks/{item_id}/status", response_model=project_schemas.ItemDocument)
async def change_status(project: TheProject, item_id: ItemId, change: project_schemas.StatusChange) -> Response:
    """Leads a task to another status: as on a board."""
    tasks = project.tasks
    if change.status == "blocked":
        task = await tasks.block(item_id, change.blocked_by, change.reason, expect=change.expect)
    else:
        task = await getattr(tasks, _VERBS[change.status])(item_id, change.reason, expect=change.expect)
    return Json(item_document(task))


def _listed(found: Any) -> Response:
    cursor = found.cursor if isinstance(found, Page) else None
    return Json({"items": [item_document(each) for each in found], "cursor": cursor})


def item_document(item: Item) -> dict[str, Any]:
    """An item as JSON: times in RFC 3339."""
    return {field.name: _plain(getattr(item, field.name)) for field in dataclasses.fields(item)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value

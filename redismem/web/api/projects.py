"""The routes of projects: decisions, tasks and entities, now or at a moment, and a task board."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from redismem.errors import ItemNotFound
from redismem.inspection.projects import project_names
from redismem.project.items.fields import is_item_id
from redismem.project.items.records import Entity, Item, Page
from redismem.project.items.schema import TASK
from redismem.project.project import Project
from redismem.web.api import project_schemas, schemas
from redismem.web.api.sessions import TheMemory, TheService, memory_of, service_of
from redismem.web.http.json import Json, parse_moment
from redismem.web.http.problems import Problem

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Store = Literal["decisions", "tasks", "entities"]
# The filters of lists, and the stores that know each.
_FILTERS = {
    "assignee": ("tasks",),
    "priority": ("tasks",),
    "type": ("entities",),
    "status": ("decisions", "tasks"),
    "include_superseded": ("decisions",),
}
_STORES = {"d": "decisions", "t": "tasks", "e": "entities"}
_VERBS = {
    "backlog": "reopen",
    "planned": "plan",
    "in_progress": "start",
    "unblocked": "unblock",
    "completed": "complete",
    "cancelled": "cancel",
}


def project_of(request: Request, name: Annotated[schemas.ProjectName, Path()]) -> Project:
    """Return the project in the path, from the caller's namespace."""
    return service_of(request).project(memory_of(request), name)


def moment_of(at: Annotated[str | None, Query(max_length=64, description="A time (RFC 3339).")] = None) -> Any:
    """Return the moment in the query. `None` means now. Raises Problem."""
    return None if at is None else parse_moment(at, "at is a time with its zone (RFC 3339)")


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
    include_superseded: bool | None = None,
) -> dict[str, Any]:
    """Return the filters of a list. Raises Problem for a filter that this kind of item does not have."""
    filters: dict[str, Any] = {"status": status, "assignee": assignee, "priority": priority, "type": type}
    filters["include_superseded"] = include_superseded
    unknown = sorted(name for name, value in filters.items() if value is not None and store not in _FILTERS[name])
    if unknown:
        raise Problem("invalid", f"{store} have no filter {', '.join(unknown)}")
    filters |= {"text": text, "tags": None if tag is None else [tag], "at": at}
    return {name: value for name, value in filters.items() if value is not None}


TheProject = Annotated[Project, Depends(project_of)]
Criteria = Annotated[dict[str, Any], Depends(criteria_of)]
ItemId = Annotated[str, Path(min_length=1, max_length=64)]


class _Documents:
    """Convert items to JSON, with times in RFC 3339. The value of a property named like a sensitive param is null."""

    def __init__(self, service: TheService) -> None:
        self._hidden: Collection[str] = service.hidden_params

    def one(self, item: Item) -> dict[str, Any]:
        document = {field.name: _plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
        if isinstance(item, Entity):
            hidden = [name for name in item.properties if name in self._hidden]
            document["properties"] = item.properties | dict.fromkeys(hidden)
            document["hidden_properties"] = hidden
        return document

    def all(self, items: Iterable[Item]) -> list[dict[str, Any]]:
        return [self.one(each) for each in items]


Documents = Annotated[_Documents, Depends(_Documents)]


@router.get("", response_model=project_schemas.ProjectList)
async def list_projects(memory: TheMemory) -> Response:
    """Return the names of the projects, sorted."""
    return Json({"projects": await project_names(memory.store)})


@router.get("/{name}", response_model=project_schemas.ProjectLife)
async def read_project(project: TheProject) -> Response:
    """Return the times of the project's first and last change. It can be read as of any moment between these."""
    first, last = await project.life() or (None, None)
    return Json({"name": project.name, "first_at": _plain(first), "last_at": _plain(last)})


@router.get("/{name}/context", response_model=project_schemas.ProjectContextDocument)
async def read_project_context(
    project: TheProject,
    term: Annotated[list[Annotated[str, Query(max_length=200)]] | None, Query(max_length=20)] = None,
    max_tokens: Annotated[int, Query(ge=50, le=100_000)] = 1_500,
) -> Response:
    """Return the project's background for a prompt: its text and its numbers."""
    context = await project.context(term or ())
    return Json({"text": context.format(max_tokens), "summary": dataclasses.asdict(context.summary)})


@router.get("/{name}/board", response_model=project_schemas.Board)
async def read_board(
    project: TheProject, documents: Documents, at: At, limit: Annotated[int, Query(ge=1, le=1_000)] = 50
) -> Response:
    """Return the tasks, now or at a moment: one column per status, each sorted by priority, then newest first."""
    statuses = list(TASK.transitions or ())
    moment: Any = {} if at is None else {"at": at}
    pages = await asyncio.gather(*(project.tasks.list(limit=limit, status=each, **moment) for each in statuses))
    columns = [
        {"status": status, "items": documents.all(page), "more": page.cursor is not None}
        for status, page in zip(statuses, pages, strict=True)
    ]
    return Json({"columns": columns})


@router.get("/{name}/decisions/{item_id}/chain", response_model=project_schemas.ItemList)
async def read_chain(project: TheProject, documents: Documents, item_id: ItemId, at: At) -> Response:
    """Return the chain of a decision, now or at a moment, oldest first: each decision replaced the one before it."""
    return Json({"items": documents.all(await project.decisions.history(item_id, at=at)), "cursor": None})


@router.get("/{name}/{store}", response_model=project_schemas.ItemList)
async def list_items(
    project: TheProject,
    documents: Documents,
    store: Store,
    criteria: Criteria,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """Return the items that match, now or at a moment, in the order of their kind.

    Finished items are listed only if `status` asks for them.
    """
    page: Page[Item] = await getattr(project, store).list(limit=limit, cursor=cursor, **criteria)
    return Json({"items": documents.all(page), "cursor": page.cursor})


@router.get("/{name}/{store}/{item_id}", response_model=project_schemas.ItemDocument)
async def read_item(project: TheProject, documents: Documents, store: Store, item_id: ItemId, at: At) -> Response:
    """Return an item, now or at a moment."""
    return Json(documents.one(await getattr(project, store).get(item_id, at=at)))


@router.delete("/{name}/{store}/{item_id}", status_code=204)
async def erase_item(project: TheProject, store: Store, item_id: ItemId) -> Response:
    """Erase an item permanently, with all its versions and links. Works for a deleted item too."""
    if not await getattr(project, store).erase(item_id):
        raise ItemNotFound(f"there is no item {item_id}")
    return Response(status_code=204)


@router.get("/{name}/{store}/{item_id}/versions", response_model=project_schemas.VersionList)
async def read_versions(project: TheProject, store: Store, item_id: ItemId) -> Response:
    """Return the changes of an item, oldest first. Works for a deleted item too."""
    versions = await getattr(project, store).versions(item_id)
    return Json({"versions": [_plain(version) for version in versions]})


@router.get("/{name}/{store}/{item_id}/links", response_model=project_schemas.LinkList)
async def read_links(project: TheProject, store: Store, item_id: ItemId, at: At) -> Response:
    """Return the titles of the items that an item refers to, now or at a moment. Leaves out deleted items."""
    item = await getattr(project, store).get(item_id, at=at)
    titles = await asyncio.gather(*(_read_title(project, linked_id, at) for linked_id in sorted(_linked_ids(item))))
    return Json({"links": {linked_id: title for linked_id, title in titles if title is not None}})


@router.post("/{name}/{store}", status_code=201, response_model=project_schemas.ItemDocument)
async def create_item(
    project: TheProject, documents: Documents, store: Literal["tasks"], new: project_schemas.NewTask
) -> Response:
    """Create a task in the backlog; other items have no such route. The first item of a project creates the project."""
    del store
    task = await project.tasks.create(
        new.title, description=new.description, priority=new.priority, assignee=new.assignee
    )
    return Json(documents.one(task), 201)


@router.post("/{name}/tasks/{item_id}/status", response_model=project_schemas.ItemDocument)
async def change_status(
    project: TheProject, documents: Documents, item_id: ItemId, change: project_schemas.StatusChange
) -> Response:
    """Move a task to another status, as on a board."""
    tasks = project.tasks
    if change.status == "blocked":
        task = await tasks.block(item_id, change.blocked_by, change.reason, expect=change.expect)
    else:
        task = await getattr(tasks, _VERBS[change.status])(item_id, change.reason, expect=change.expect)
    return Json(documents.one(task))


def _linked_ids(item: Any) -> set[str]:
    """Return the ids of the items that an item refers to."""
    fields = ("related_decisions", "related_tasks", "dependencies", "blocked_by")
    ids = {each for name in fields for each in getattr(item, name, ())}
    ids |= {getattr(item, name, None) or "" for name in ("supersedes", "superseded_by", "merged_into")}
    ids |= {relation.entity_id for relation in getattr(item, "relations", ())}
    return {each for each in ids if is_item_id(each[:1], each) and each[:1] in _STORES}


async def _read_title(project: Project, item_id: str, at: datetime | None) -> tuple[str, str | None]:
    try:
        item = await getattr(project, _STORES[item_id[0]]).get(item_id, at=at)
    except ItemNotFound:
        return item_id, None
    return item_id, item.name if isinstance(item, Entity) else item.title


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value

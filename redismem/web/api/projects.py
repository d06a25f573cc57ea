"""The routes of projects: decisions, tasks and entities, now or at a moment, and a task board."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from redismem.errors import ItemNotFound
from redismem.inspection.projects import project_names
from redismem.project.items.fields import is_item_id
from redismem.project.items.records import Entity, Item, Page
from redismem.project.items.schema import TASK, DecisionStatus, EntityType, Priority, TaskStatus
from redismem.project.project import Project
from redismem.web.api import project_schemas, schemas
from redismem.web.api.sessions import TheMemory, TheService, memory_of, service_of
from redismem.web.http.json import Json, parse_moment

router = APIRouter(prefix="/v1/projects", tags=["projects"])
_STORES = {"d": "decisions", "t": "tasks", "e": "entities"}


def project_of(request: Request, name: Annotated[schemas.ProjectName, Path()]) -> Project:
    """Return the project in the path, from the caller's namespace."""
    return service_of(request).project(memory_of(request), name)


def moment_of(at: Annotated[str | None, Query(max_length=64, description="A time (RFC 3339).")] = None) -> Any:
    """Return the moment in the query. `None` means now. Raises Problem."""
    return None if at is None else parse_moment(at, "at is a time with its zone (RFC 3339)")


At = Annotated[datetime | None, Depends(moment_of)]
Word = Annotated[str | None, Query(max_length=64)]


def shared_filters(
    at: At,
    text: Annotated[str | None, Query(max_length=1_000)] = None,
    tag: Word = None,
) -> dict[str, Any]:
    """Return the filters that all lists have."""
    return {"text": text, "tags": None if tag is None else [tag], "at": at}


Shared = Annotated[dict[str, Any], Depends(shared_filters)]


def decision_filters(
    shared: Shared, status: DecisionStatus | None = None, include_superseded: bool | None = None
) -> dict[str, Any]:
    """Return the filters of a list of decisions."""
    return _present(shared, status=status, include_superseded=include_superseded)


def task_filters(
    shared: Shared, status: TaskStatus | None = None, assignee: Word = None, priority: Priority | None = None
) -> dict[str, Any]:
    """Return the filters of a list of tasks."""
    return _present(shared, status=status, assignee=assignee, priority=priority)


def entity_filters(shared: Shared, type: EntityType | None = None) -> dict[str, Any]:
    """Return the filters of a list of entities."""
    return _present(shared, type=type)


def _present(shared: dict[str, Any], **filters: Any) -> dict[str, Any]:
    return {name: value for name, value in (shared | filters).items() if value is not None}


TheProject = Annotated[Project, Depends(project_of)]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Cursor = Annotated[str | None, Query(max_length=500)]
ItemId = Annotated[str, Path(min_length=1, max_length=64)]


class ItemDocuments:
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


Documents = Annotated[ItemDocuments, Depends(ItemDocuments)]


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


@router.get("/{name}/decisions/{item_id}/chain", response_model=project_schemas.DecisionList)
async def read_chain(project: TheProject, documents: Documents, item_id: ItemId, at: At) -> Response:
    """Return the chain of a decision, now or at a moment, oldest first: each decision replaced the one before it."""
    return Json({"items": documents.all(await project.decisions.history(item_id, at=at)), "cursor": None})


@router.get("/{name}/decisions", response_model=project_schemas.DecisionList)
async def list_decisions(
    project: TheProject,
    documents: Documents,
    criteria: Annotated[dict[str, Any], Depends(decision_filters)],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Return the decisions that match, now or at a moment, newest first. Superseded ones come only on request."""
    return _page(documents, await project.decisions.list(limit=limit, cursor=cursor, **criteria))


@router.get("/{name}/tasks", response_model=project_schemas.TaskList)
async def list_tasks(
    project: TheProject,
    documents: Documents,
    criteria: Annotated[dict[str, Any], Depends(task_filters)],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Return the tasks that match, now or at a moment, by priority, then newest first.

    Completed and cancelled tasks are listed only if `status` asks for them.
    """
    return _page(documents, await project.tasks.list(limit=limit, cursor=cursor, **criteria))


@router.get("/{name}/entities", response_model=project_schemas.EntityList)
async def list_entities(
    project: TheProject,
    documents: Documents,
    criteria: Annotated[dict[str, Any], Depends(entity_filters)],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Return the entities that match, now or at a moment, latest mentioned first."""
    return _page(documents, await project.entities.list(limit=limit, cursor=cursor, **criteria))


def _page(documents: ItemDocuments, page: Page[Any]) -> Response:
    return Json({"items": documents.all(page), "cursor": page.cursor})


def _add_item_routes(store: str, one: str, document: type[project_schemas.ItemHead]) -> None:
    """Add the routes of one item, which are the same for all kinds."""
    path = f"/{{name}}/{store}/{{item_id}}"

    @router.get(path, response_model=document, name=f"read_{one}")
    async def read_item(project: TheProject, documents: Documents, item_id: ItemId, at: At) -> Response:
        """Return an item, now or at a moment."""
        return Json(documents.one(await getattr(project, store).get(item_id, at=at)))

    @router.get(f"{path}/versions", response_model=project_schemas.VersionList, name=f"read_{one}_versions")
    async def read_versions(project: TheProject, item_id: ItemId) -> Response:
        """Return the changes of an item, oldest first. Works for a deleted item too."""
        versions = await getattr(project, store).versions(item_id)
        return Json({"versions": [_plain(version) for version in versions]})

    @router.get(f"{path}/links", response_model=project_schemas.LinkList, name=f"read_{one}_links")
    async def read_links(project: TheProject, item_id: ItemId, at: At) -> Response:
        """Return the titles of the items that an item refers to, now or at a moment. Leaves out deleted items."""
        item = await getattr(project, store).get(item_id, at=at)
        titles = await asyncio.gather(*(_read_title(project, linked_id, at) for linked_id in sorted(_linked_ids(item))))
        return Json({"links": {linked_id: title for linked_id, title in titles if title is not None}})


_add_item_routes("decisions", "decision", project_schemas.DecisionDocument)
_add_item_routes("tasks", "task", project_schemas.TaskDocument)
_add_item_routes("entities", "entity", project_schemas.EntityDocument)


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

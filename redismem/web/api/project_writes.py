"""The routes that write decisions, tasks and entities of projects, by the rules of the MCP server's tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from redismem.errors import ItemNotFound
from redismem.project.items.records import Item
from redismem.project.items.schema import DECISION, ENTITY, TASK, ItemKind
from redismem.project.project import Project
from redismem.project.recording import (
    ChangeName,
    change_once,
    make_decision,
    record_decision,
    record_entity,
    record_task,
    set_decision_status,
    set_task_status,
)
from redismem.web.api import project_changes as changes
from redismem.web.api import project_schemas as schemas
from redismem.web.api.appends import append_id
from redismem.web.api.projects import At, Documents, ItemId, TheProject
from redismem.web.api.sessions import TheMemory
from redismem.web.http.json import Json
from redismem.web.http.problems import Problem

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Seen = Annotated[int | None, Query(ge=1, le=1 << 53)]
Make = Callable[[Project], Awaitable[Any]]


def _made(document: type[schemas.ItemHead]) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": document, "description": "Recorded before"}}


class _Writer:
    """Make the change that a request asks for: once, if it has an `Idempotency-Key`."""

    def __init__(
        self,
        request: Request,
        project: TheProject,
        memory: TheMemory,
        documents: Documents,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=128)] = None,
    ) -> None:
        self._request = request
        self._project, self._store, self._documents = project, memory.store, documents
        self._key = None if idempotency_key is None else append_id(idempotency_key.encode("latin-1"))

    async def create(self, kind: ItemKind, record: Make, make: Make) -> Response:
        """Answer with the recorded item: 201, or 200 if it was recorded before. `make` ignores what has its title."""
        if self._key is None:
            item, is_new = await record(self._project)
        else:
            item, is_new = await self._once(kind, make, None)
        return Json(self._documents.one(item), 201 if is_new else 200)

    async def change(self, kind: ItemKind, item_id: str, make: Make) -> Response:
        """Answer with the item as it is after the change."""
        item = await make(self._project) if self._key is None else (await self._once(kind, make, item_id))[0]
        return Json(self._documents.one(item))

    async def _once(self, kind: ItemKind, make: Make, item_id: str | None) -> tuple[Item, bool]:
        assert self._key is not None
        line = f"{self._request.method} {self._request.url.path}?{self._request.url.query}\n".encode()
        named = ChangeName(self._key, line + await self._request.body())
        return await change_once(self._project, self._store, named, kind, make, item_id)


Writer = Annotated[_Writer, Depends(_Writer)]


@router.post(
    "/{name}/decisions",
    status_code=201,
    response_model=schemas.DecisionDocument,
    responses=_made(schemas.DecisionDocument),
)
async def record_new_decision(writer: Writer, new: changes.NewDecision) -> Response:
    """Record a decision, or supersede an earlier one by it.

    Without `Idempotency-Key`, a decision in force with exactly this title is returned, and nothing is recorded.
    """
    fields: dict[str, Any] = {"status": new.status} | new.fields()
    return await writer.create(
        DECISION,
        lambda project: record_decision(project.decisions, **fields),
        lambda project: make_decision(project.decisions, **fields),
    )


@router.post(
    "/{name}/tasks", status_code=201, response_model=schemas.TaskDocument, responses=_made(schemas.TaskDocument)
)
async def record_new_task(writer: Writer, new: changes.NewTask) -> Response:
    """Record a task. The first item of a project creates the project.

    Without `Idempotency-Key`, an open task with exactly this title is returned, and nothing is recorded.
    """
    fields = new.fields()
    return await writer.create(
        TASK, lambda project: record_task(project.tasks, **fields), lambda project: project.tasks.create(**fields)
    )


@router.post(
    "/{name}/entities", status_code=201, response_model=schemas.EntityDocument, responses=_made(schemas.EntityDocument)
)
async def record_new_entity(writer: Writer, new: changes.NewEntity) -> Response:
    """Record a person or thing, or fill in the missing fields of the one with this name."""
    fields = new.fields()
    return await writer.create(
        ENTITY,
        lambda project: record_entity(project.entities, **fields),
        lambda project: project.entities.find_or_create(**fields),
    )


@router.patch("/{name}/decisions/{item_id}", response_model=schemas.DecisionDocument)
async def change_decision(writer: Writer, item_id: ItemId, change: changes.DecisionChange) -> Response:
    """Set fields of a decision. Its status has a route of its own."""
    fields = change.sent_fields()
    return await writer.change(DECISION, item_id, lambda project: project.decisions.update(item_id, **fields))


@router.patch("/{name}/tasks/{item_id}", response_model=schemas.TaskDocument)
async def change_task(writer: Writer, item_id: ItemId, change: changes.TaskChange) -> Response:
    """Set fields of a task. Its status has a route of its own."""
    fields = change.sent_fields()
    return await writer.change(TASK, item_id, lambda project: project.tasks.update(item_id, **fields))


@router.patch("/{name}/entities/{item_id}", response_model=schemas.EntityDocument)
async def change_entity(writer: Writer, item_id: ItemId, change: changes.EntityChange) -> Response:
    """Set fields of an entity. A name that another entity has is a conflict."""
    fields = change.sent_fields()
    return await writer.change(ENTITY, item_id, lambda project: project.entities.update(item_id, **fields))


@router.post("/{name}/decisions/{item_id}/status", response_model=schemas.DecisionDocument)
async def change_decision_status(writer: Writer, item_id: ItemId, change: changes.DecisionStatusChange) -> Response:
    """Accept, reject, deprecate or supersede a decision. The last three end its validity."""

    def make(project: Project) -> Awaitable[Any]:
        by, options = change.superseded_by, change.options()
        return set_decision_status(project.decisions, item_id, change.status, change.reason, by, **options)

    return await writer.change(DECISION, item_id, make)


@router.post("/{name}/tasks/{item_id}/status", response_model=schemas.TaskDocument)
async def change_status(writer: Writer, item_id: ItemId, change: changes.StatusChange) -> Response:
    """Move a task to another status, as on a board."""

    def make(project: Project) -> Awaitable[Any]:
        tasks, status, options = project.tasks, change.status, change.options()
        if status == "unblocked":
            return tasks.unblock(item_id, change.reason, **options)
        return set_task_status(tasks, item_id, status, change.reason, change.blocked_by, **options)

    return await writer.change(TASK, item_id, make)


@router.post("/{name}/entities/{item_id}/mentions", response_model=schemas.EntityDocument)
async def add_mention(writer: Writer, item_id: ItemId, new: changes.NewMention) -> Response:
    """Record a mention of an entity. Each one counts; with `Idempotency-Key`, a repeated request counts once."""

    def make(project: Project) -> Awaitable[Any]:
        return project.entities.add_mention(item_id, new.context, new.source, at=new.at)  # type: ignore[arg-type]

    return await writer.change(ENTITY, item_id, make)


@router.put("/{name}/entities/{item_id}/properties/{property}", response_model=schemas.EntityDocument)
async def set_property(writer: Writer, item_id: ItemId, property: str, fact: changes.PropertyValue) -> Response:
    """Record a fact of an entity: one property. It replaces the value that the property has now."""
    named = _decoded(property)

    def make(project: Project) -> Awaitable[Any]:
        return project.entities.set_property(item_id, named, fact.value, **fact.options())

    return await writer.change(ENTITY, item_id, make)


@router.delete("/{name}/entities/{item_id}/properties/{property}", response_model=schemas.EntityDocument)
async def remove_property(writer: Writer, item_id: ItemId, property: str, at: At, expect: Seen = None) -> Response:
    """End a fact of an entity. It can still be read as of an earlier moment."""
    named = _decoded(property)

    def make(project: Project) -> Awaitable[Any]:
        return project.entities.remove_property(item_id, named, expect=expect, at=at)

    return await writer.change(ENTITY, item_id, make)


@router.put("/{name}/entities/{item_id}/relations/{relation}/{other_id}", response_model=schemas.EntityDocument)
async def add_relation(writer: Writer, item_id: ItemId, relation: str, other_id: ItemId, at: At) -> Response:
    """Add a relation from an entity to another one, which is stored in both."""
    named = _decoded(relation)
    return await writer.change(ENTITY, item_id, lambda project: project.entities.link(item_id, named, other_id, at=at))


@router.delete("/{name}/entities/{item_id}/relations/{relation}/{other_id}", response_model=schemas.EntityDocument)
async def remove_relation(writer: Writer, item_id: ItemId, relation: str, other_id: ItemId, at: At) -> Response:
    """End a relation between two entities, in both."""
    named = _decoded(relation)
    return await writer.change(
        ENTITY, item_id, lambda project: project.entities.unlink(item_id, named, other_id, at=at)
    )


@router.post("/{name}/entities/{item_id}/merge", response_model=schemas.EntityDocument)
async def merge_entity(writer: Writer, item_id: ItemId, merged: changes.Duplicate) -> Response:
    """Merge a duplicate into an entity: its facts, mentions and relations move, and its name finds this entity."""
    return await writer.change(ENTITY, item_id, lambda project: project.entities.merge(item_id, merged.duplicate))


@router.put("/{name}/decisions/{item_id}/links/{other_id}", response_model=schemas.DecisionDocument)
async def link_decision(writer: Writer, item_id: ItemId, other_id: ItemId, at: At) -> Response:
    """Link a decision and a task, or two decisions, in both directions."""

    def make(project: Project) -> Awaitable[Any]:
        link = project.decisions.link_task if _is_task(other_id) else project.decisions.link_decision
        return link(item_id, other_id, at=at)

    return await writer.change(DECISION, item_id, make)


@router.delete("/{name}/decisions/{item_id}/links/{other_id}", response_model=schemas.DecisionDocument)
async def unlink_decision(writer: Writer, item_id: ItemId, other_id: ItemId, at: At) -> Response:
    """End the link between a decision and a task, or between two decisions."""

    def make(project: Project) -> Awaitable[Any]:
        unlink = project.decisions.unlink_task if _is_task(other_id) else project.decisions.unlink_decision
        return unlink(item_id, other_id, at=at)

    return await writer.change(DECISION, item_id, make)


@router.put("/{name}/tasks/{item_id}/links/{other_id}", response_model=schemas.TaskDocument)
async def link_task(writer: Writer, item_id: ItemId, other_id: ItemId, at: At) -> Response:
    """Link a task and a decision in both directions; or let the task depend on another task."""

    def make(project: Project) -> Awaitable[Any]:
        link = project.tasks.add_dependency if _is_task(other_id) else project.tasks.link_decision
        return link(item_id, other_id, at=at)

    return await writer.change(TASK, item_id, make)


@router.delete("/{name}/tasks/{item_id}/links/{other_id}", response_model=schemas.TaskDocument)
async def unlink_task(writer: Writer, item_id: ItemId, other_id: ItemId, at: At) -> Response:
    """End the link between a task and a decision, or the dependency on a task."""

    def make(project: Project) -> Awaitable[Any]:
        unlink = project.tasks.remove_dependency if _is_task(other_id) else project.tasks.unlink_decision
        return unlink(item_id, other_id, at=at)

    return await writer.change(TASK, item_id, make)


def _add_removal(store: str, one: str) -> None:
    @router.delete(f"/{{name}}/{store}/{{item_id}}", status_code=204, name=f"remove_{one}")
    async def remove_item(
        project: TheProject, item_id: ItemId, at: At, keep_versions: bool = False, expect: Seen = None
    ) -> Response:
        """Erase an item permanently, with all its versions and links. Works for a deleted item too.

        With `keep_versions` it ends, now or at `at`, and can still be read as of an earlier moment.
        """
        items = getattr(project, store)
        if keep_versions:
            await items.delete(item_id, expect=expect, at=at)
        elif at is not None or expect is not None:
            raise Problem("invalid", "at and expect need keep_versions=true: without it, nothing of the item is left")
        elif not await items.erase(item_id):
            raise ItemNotFound(f"there is no item {item_id}")
        return Response(status_code=204)


for _store, _one in (("decisions", "decision"), ("tasks", "task"), ("entities", "entity")):
    _add_removal(_store, _one)


def _is_task(item_id: str) -> bool:
    return item_id.startswith("t-")


def _decoded(segment: str) -> str:
    """Return the name in a percent-encoded segment of the path. Raises Problem: bad_request."""
    try:
        return unquote_to_bytes(segment.encode("latin-1")).decode()
    except UnicodeError:
        raise Problem("bad_request", "a name in a path is percent-encoded UTF-8") from None

"""`redismem project`: what a project decided, has to do and is about; its history."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter, validators

from redismem.cli import project_view
from redismem.cli.place import Place, looking
from redismem.cli.terminal import AsJson, Namespace, Stop, Url, console, plural, print_json
from redismem.errors import InvalidItem
from redismem.inspection import projects as listing
from redismem.project.project import Project

Name = Annotated[str, Parameter(help="The project.")]
Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=1_000), help="Items shown.")]
Text = Annotated[str, Parameter(help="Words, or beginnings of words: all of them.")]
At = Annotated[
    str | None,
    Parameter(help="As of this moment: 2026-11-22, or 2026-11-22T14:00+01:00. Of one to come: what holds now."),
]
Status = Annotated[str | None, Parameter(help="Those of this status alone.")]


@contextlib.asynccontextmanager
async def looking_at(name: str, url: str | None, namespace: str) -> AsyncIterator[tuple[Project, Place]]:
    """A project that is there. Raises Stop if there is none of this name."""
    async with looking(url, namespace) as (memory, place):
        project = memory.project(name)
        if project.name not in await listing.project_names(memory.store):
            raise Stop(
                f"there is no project {name} in namespace {namespace} on {place.name}; "
                "`redismem project list` and `redismem namespaces` say what there is"
            )
        yield project, place


async def projects(*, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False) -> int:
    """List the projects of a namespace."""
    async with looking(url, namespace) as (memory, place):
        names = await listing.project_names(memory.store)
    if as_json:
        print_json({"store": place.name, "namespace": namespace, "projects": names})
    else:
        print("\n".join([*names, f"{plural(len(names), 'project')} in namespace {namespace} on {place.name}"]))
    return 0


async def show(name: Name, *, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False) -> int:
    """Show a project in numbers: what is decided, open, blocked, overdue, most mentioned."""
    async with looking_at(name, url, namespace) as (project, _):
        found = await project.statistics()
    if as_json:
        print_json(document(found))
    else:
        project_view.statistics(console(), name, found)
    return 0


async def decisions(
    name: Name,
    *,
    text: Text = "",
    status: Status = None,
    at: At = None,
    limit: Limit = 50,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """List decisions, the newest first; superseded ones with `--status superseded`."""
    criteria = _criteria(text, status, at)
    async with looking_at(name, url, namespace) as (project, _):
        found = await project.decisions.list(limit=limit, **criteria)
    return _shown(found, as_json, project_view.decisions)


async def tasks(
    name: Name,
    *,
    text: Text = "",
    status: Status = None,
    assignee: Annotated[str | None, Parameter(help="Those of this person alone.")] = None,
    at: At = None,
    limit: Limit = 50,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """List tasks, by priority, then the newest first; those that are done with `--status completed`."""
    criteria = _criteria(text, status, at) | ({} if assignee is None else {"assignee": assignee})
    async with looking_at(name, url, namespace) as (project, _):
        found = await project.tasks.list(limit=limit, **criteria)
    return _shown(found, as_json, project_view.tasks)


async def entities(
    name: Name,
    *,
    text: Text = "",
    at: At = None,
    limit: Limit = 50,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """List entities, those mentioned last first."""
    async with looking_at(name, url, namespace) as (project, _):
        found = await project.entities.list(limit=limit, **_criteria(text, None, at))
    return _shown(found, as_json, project_view.entities)


async def board(
    name: Name, *, at: At = None, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False
) -> int:
    """Show the tasks as a board, a column a status: the first 20 of each."""
    columns = {}
    async with looking_at(name, url, namespace) as (project, _):
        store = project.tasks
        for status in project_view.COLUMNS:
            columns[status] = await store.list(limit=20, **_criteria("", status, at))
    if as_json:
        print_json({status: [document(each) for each in found] for status, found in columns.items()})
    else:
        project_view.board(console(), columns)
    return 0


async def chain(
    name: Name,
    decision: Annotated[str, Parameter(help="The id of a decision.")],
    *,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Show what a decision came from and what came of it, as a tree, with every status."""
    async with looking_at(name, url, namespace) as (project, _):
        found = await project.decisions.history(decision)
    return _shown(found, as_json, project_view.chain)


async def consolidate(
    name: Name,
    *,
    days: Annotated[
        float,
        Parameter(
            help="What was superseded or cancelled longer ago.", validator=validators.Number(gte=0, lt=1_000_000)
        ),
    ] = 90,
    do: Annotated[bool, Parameter(negative=(), show_default=False, help="Do it; without this, say it alone.")] = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Archive what is long over, and merge entities whose names differ in signs alone: a dry run without `--do`."""
    async with looking_at(name, url, namespace) as (project, _):
        told = await project.consolidate(older_than_days=days, dry_run=not do)
    if as_json:
        print_json(document(told))
    else:
        did = "did" if do else "would do (--do does it)"
        print(f"{did}: {plural(len(told.archived), 'item')} archived, {len(told.merged)} merged")
        print("\n".join([*told.archived, *(f"{other} into {one}" for one, other in told.merged)]))
    return 0


def document(value: Any) -> Any:
    """A record as JSON: times in ISO 8601, durations in seconds."""
    if dataclasses.is_dataclass(value):
        return {field.name: document(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, dict):
        return {key: document(each) for key, each in value.items()}
    if hasattr(value, "_asdict"):
        return document(value._asdict())
    if isinstance(value, list | tuple):
        return [document(each) for each in value]
    return value.total_seconds() if hasattr(value, "total_seconds") else value


def _criteria(text: str, status: str | None, at: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"text": text}
    if status is not None:
        found["status"] = status
    if at is not None:
        try:
            moment = datetime.fromisoformat(at)
        except ValueError:
            raise InvalidItem("--at is a date or a moment, such as 2026-11-22T14:00+01:00") from None
        found["at"] = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return found


def _shown(found: Any, as_json: bool, view: Any) -> int:
    if as_json:
        print_json([document(each) for each in found])
    else:
        view(console(), found)
    return 0

"""Projects: list and show them, their decisions, tasks and entities, and their history."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter

from redismem.cli import project_view
from redismem.cli.options import DEFAULT, DryRun, On, Target, Yes, flag, option, within
from redismem.cli.place import ChosenStore, open_read_only
from redismem.cli.terminal import Stop, ask, console, print_json
from redismem.errors import InvalidItem
from redismem.inspection import projects as listing
from redismem.inspection.figures import plural
from redismem.project.project import Project

Name = Annotated[str, option("The name of the project.")]
Limit = Annotated[int, within(1, 1_000, "Items to show.")]
Text = Annotated[str, Parameter(show_default=False, help="Words or prefixes of words; an item must match all of them.")]
_AT_HELP = "Show the project as of this time: 2026-11-22 or 2026-11-22T14:00+01:00. A future time shows the present."
At = Annotated[str | None, option(_AT_HELP)]
Status = Annotated[str | None, option("Only items with this status.")]


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """The conditions that items of any kind may have to meet."""

    text: Text = ""
    at: At = None
    limit: Limit = 50


What = Annotated[Query, Parameter(name="*")]
ALL = Query()


@contextlib.asynccontextmanager
async def open_project(name: str, on: Target) -> AsyncIterator[tuple[Project, ChosenStore]]:
    """Yield an existing project, and the place of its server.

    Raises:
        Stop: if the namespace has no such project.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        project = memory.project(name)
        if project.name not in await listing.project_names(memory.store):
            raise Stop(
                f"namespace {on.namespace} on {place.name} has no project {name}; "
                "`redismem list projects` and `redismem list namespaces` list the existing ones"
            )
        yield project, place


async def list_projects(*, on: On = DEFAULT) -> int:
    """List the projects of a namespace."""
    async with open_read_only(on.url, on.namespace) as (memory, place):
        names = await listing.project_names(memory.store)
    if on.as_json:
        print_json({"store": place.name, "namespace": on.namespace, "projects": names})
    else:
        print("\n".join([*names, f"{plural(len(names), 'project')} in namespace {on.namespace} on {place.name}"]))
    return 0


async def show(name: Name, /, *, on: On = DEFAULT) -> int:
    """Show the statistics of a project: decisions, open, blocked and overdue tasks, most mentioned entities."""
    async with open_project(name, on) as (project, _):
        found = await project.statistics()
    if on.as_json:
        print_json(document(found))
    else:
        project_view.statistics(console(), name, found)
    return 0


async def decisions(name: Name, /, *, what: What = ALL, status: Status = None, on: On = DEFAULT) -> int:
    """List decisions, newest first; `--status superseded` lists the superseded ones."""
    async with open_project(name, on) as (project, _):
        found = await project.decisions.list(**_criteria(what, status=status))
    return _print_records(found, on.as_json, project_view.decisions)


async def tasks(
    name: Name,
    /,
    *,
    board: Annotated[bool, flag("Show a board with one column per status, at most 20 tasks each.")] = False,
    what: What = ALL,
    status: Status = None,
    assignee: Annotated[str | None, option("Only tasks of this person.")] = None,
    on: On = DEFAULT,
) -> int:
    """List tasks by priority, then newest first; `--status completed` lists the finished ones."""
    criteria = _criteria(what, status=status, assignee=assignee)
    async with open_project(name, on) as (project, _):
        if not board:
            return _print_records(await project.tasks.list(**criteria), on.as_json, project_view.tasks)
        columns = {}
        for each in project_view.COLUMNS if status is None else (status,):
            columns[each] = await project.tasks.list(**criteria | {"status": each, "limit": 20})
    if on.as_json:
        print_json({status: [document(each) for each in found] for status, found in columns.items()})
    else:
        project_view.board(console(), columns)
    return 0


async def entities(name: Name, /, *, what: What = ALL, on: On = DEFAULT) -> int:
    """List entities, most recently mentioned first."""
    async with open_project(name, on) as (project, _):
        found = await project.entities.list(**_criteria(what))
    return _print_records(found, on.as_json, project_view.entities)


async def history(
    name: Name,
    decision: Annotated[str, Parameter(help="The id of a decision.")],
    /,
    *,
    on: On = DEFAULT,
) -> int:
    """Show the chain of decisions that a decision belongs to, as a tree with every status change."""
    async with open_project(name, on) as (project, _):
        found = await project.decisions.history(decision)
    return _print_records(found, on.as_json, project_view.chain)


async def consolidate(
    name: Name,
    /,
    *,
    days: Annotated[float, within(0, 999_999, "Minimum age in days of superseded or cancelled items.")] = 90,
    dry_run: DryRun = False,
    yes: Yes = False,
    on: On = DEFAULT,
) -> int:
    """Archive old closed items and merge entities whose names differ only in punctuation.

    Asks for confirmation first; without a terminal it needs `--yes`.
    """
    async with open_project(name, on) as (project, place):
        report = await project.consolidate(older_than_days=days, dry_run=True)
        if not dry_run and (report.archived or report.merged):
            counts = f"{plural(len(report.archived), 'item')} and merge {len(report.merged)}"
            ask(f"Archive {counts} in project {name}, namespace {on.namespace} on {place.name}?", yes=yes)
            report = await project.consolidate(older_than_days=days)
    if on.as_json:
        print_json(document(report))
    else:
        did = "dry run" if dry_run else "done"
        print(f"{did}: {plural(len(report.archived), 'item')} archived, {len(report.merged)} merged")
        print("\n".join([*report.archived, *(f"{other} into {target}" for target, other in report.merged)]))
    return 0


def document(value: Any) -> Any:
    """Convert a record to JSON values: times in ISO 8601, durations in seconds."""
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


def _criteria(what: Query, **more: str | None) -> dict[str, Any]:
    criteria: dict[str, Any] = {"text": what.text, "limit": what.limit}
    criteria |= {name: value for name, value in more.items() if value is not None}
    if what.at is not None:
        try:
            moment = datetime.fromisoformat(what.at)
        except ValueError:
            raise InvalidItem("--at takes a date or a time, such as 2026-11-22T14:00+01:00") from None
        criteria["at"] = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return criteria


def _print_records(records: Any, as_json: bool, view: Any) -> int:
    if as_json:
        print_json([document(each) for each in records])
    else:
        view(records)
    return 0

"""`redismem check`: test all stored sessions, projects and records against the invariants. Read-only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from redismem.cli.options import DEFAULT, On, within
from redismem.cli.place import open_read_only
from redismem.cli.terminal import console, print_json, print_rows
from redismem.inspection.check import check as check_all
from redismem.inspection.figures import plural, printable
from redismem.inspection.invariants import Violation
from redismem.inspection.projects import check_projects
from redismem.inspection.records import check_records
from redismem.store.depths import sessions_count

if TYPE_CHECKING:
    from rich.progress import Progress

Limit = Annotated[int, within(1, None, "Violations to list; all are counted.")]


async def check(*, limit: Limit = 100, on: On = DEFAULT) -> int:
    """Check every session, project and record of a namespace against the invariants.

    A session's messages, counters, summaries, queues, leases and expiry must be consistent; so must a project's
    items, versions, links, names and indexes, and a record's keys, expiry and indexes.
    Workers and appends may run meanwhile. It writes nothing and prints no message text. Use the settings of the pods:
    threshold, strategy and limits matter.

    Exit code: 0 no violations, 1 violations found, 2 the namespace was never used on this Redis.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        checked = 0
        with _progress() as bar:
            task = bar.add_task("checking", total=await sessions_count(memory.store))

            def advance(count: int) -> None:
                nonlocal checked
                checked += count
                bar.update(task, completed=checked)

            found = [violation async for violation in check_all(memory.store, on_checked=advance)]
            found += [violation async for violation in check_projects(memory.store)]
            found += [violation async for violation in check_records(memory.store)]
    if on.as_json:
        rows = [violation._asdict() for violation in found[:limit]]
        numbers = {"sessions_count": checked, "violations_count": len(found)}
        print_json({"store": place.name, "namespace": on.namespace, **numbers, "violations": rows, "good": not found})
    else:
        _report(found, limit, checked, f"namespace {on.namespace} on {place.name}")
    return 1 if found else 0


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty())


def _report(found: Sequence[Violation], limit: int, sessions_count: int, where: str) -> None:
    from rich.text import Text

    out = console()
    if found:
        rows = []
        for violation in found[:limit]:
            what = violation.text.removeprefix(f"session {violation.session_id}: ")
            rows.append([printable(violation.session_id), violation.invariant, printable(what)])
        print_rows(("session", "rule", "what"), rows)
    if len(found) > limit:
        out.print(f"and {len(found) - limit:,} more (--limit)")
    out.print(Text(f"{plural(sessions_count, 'session')} checked in {where}"))
    broken = len({violation.session_id for violation in found})
    verdict = f"{plural(len(found), 'violation')}, in {plural(broken, 'session')}" if found else "no violations"
    out.print(Text(verdict, "bold red" if found else "bold green"))

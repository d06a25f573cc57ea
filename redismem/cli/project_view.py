"""A project on a terminal: tables, a board, a chain of decisions, numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from redismem.cli.terminal import duration, one_line, plural
from redismem.project.items.records import Decision, Entity, Task
from redismem.project.statistics import Statistics

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("backlog", "planned", "in_progress", "blocked", "completed", "cancelled")


def decisions(out: Console, found: Sequence[Decision]) -> None:
    """Prints a table with a row for each decision."""
    rows = [(each.id, each.status, f"{each.valid_from:%Y-%m-%d}", each.title) for each in found]
    _table(out, ("id", "status", "since", "title"), rows, "decision")


def tasks(out: Console, found: Sequence[Task]) -> None:
    """Prints a table with a row for each task."""
    rows = [
        (
            each.id,
            each.priority,
            each.status,
            each.assignee or "",
            f"{each.due_date:%Y-%m-%d}" if each.due_date else "",
            each.title,
        )
        for each in found
    ]
    _table(out, ("id", "priority", "status", "assignee", "due", "title"), rows, "task")


def entities(out: Console, found: Sequence[Entity]) -> None:
    """Prints a table with a row for each entity."""
    rows = [(each.id, each.type, str(each.mention_count), each.name) for each in found]
    _table(out, ("id", "type", "mentions", "name"), rows, "entity")


def board(out: Console, columns: Mapping[str, Iterable[Task]]) -> None:
    """Prints a table with a column for each status."""
    from rich.table import Table
    from rich.text import Text

    table = Table(pad_edge=False, header_style="bold", show_lines=False)
    for status in columns:
        table.add_column(status.replace("_", " "), overflow="fold", ratio=1)
    table.add_row(
        *(
            Text("\n".join(f"{each.priority[0].upper()} {one_line(each.title, 60)}" for each in found))
            for found in columns.values()
        )
    )
    out.print(table)
    out.print("C critical, H high, M medium, L low", style="dim")


def chain(out: Console, found: Sequence[Decision]) -> None:
    """The oldest at the root, each in whose place another came above that one."""
    from rich.text import Text
    from rich.tree import Tree

    root = branch = None
    for each in found:
        label = Text(f"{one_line(each.title, 60)}  {each.id}")
        if root is None or branch is None:
            root = branch = Tree(label)
        else:
            branch = branch.add(label)
        for entry in each.history:
            why = f": {one_line(entry.reason, 50)}" if entry.reason else ""
            branch.add(Text(f"{entry.at:%Y-%m-%d %H:%M} {entry.status}{why}", style="dim"))
    if root is not None:
        out.print(root)


def statistics(out: Console, name: str, found: Statistics) -> None:
    """The numbers, a line each."""
    from rich.text import Text

    def counts(numbers: Mapping[str, int]) -> str:
        return ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in numbers.items() if count) or "none"

    mean = found.mean_completion
    lines = {
        "decisions": counts(found.decisions_by_status),
        "tasks": counts(found.tasks_by_status),
        "priorities": counts(found.tasks_by_priority),
        "open tasks": f"{found.open_tasks_count}, {found.blocked_count} blocked, {found.overdue_count} overdue",
        "completed within": "none yet" if mean is None else duration(mean.total_seconds() * 1000),
        "entities": counts(found.entities_by_type),
        "most mentioned": _listed(found.most_mentioned),
        "tags": _listed(islice(found.tags.items(), 20)),
    }
    totals = ", ".join(_counted(count, noun) for noun, count in found.totals.items() if count) or "none"
    for what, told in ((name, totals), *lines.items()):
        out.print(Text(f"{what:<17} ", "bold") + Text(told))


def _listed(counted: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{one_line(what, 30)} ({count})" for what, count in counted) or "none"


def _table(out: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], noun: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading == "id")
    for row in rows:
        table.add_row(*(Text(one_line(cell, 80)) for cell in row))
    if rows:
        out.print(table)
    out.print(Text("no entities" if not rows and noun == "entity" else _counted(len(rows), noun)))


def _counted(count: int, noun: str) -> str:
    return plural(count, noun) if noun != "entity" else f"{count:,} {'entity' if count == 1 else 'entities'}"

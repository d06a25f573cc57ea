"""The terminal views of a project: tables, a board, a chain of decisions, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from redismem.cli.terminal import console, one_line, print_rows
from redismem.inspection.figures import duration, plural
from redismem.project.items.records import Decision, Entity, Task
from redismem.project.statistics import Statistics

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("backlog", "planned", "in_progress", "blocked", "completed", "cancelled")


def decisions(found: Sequence[Decision]) -> None:
    """Print a table with one row per decision."""
    rows = [(each.id, each.status, f"{each.valid_from:%Y-%m-%d}", each.title) for each in found]
    _print_table(("id", "status", "since", "title"), rows, "decision")


def tasks(found: Sequence[Task]) -> None:
    """Print a table with one row per task."""
    rows = []
    for each in found:
        due = f"{each.due_date:%Y-%m-%d}" if each.due_date else ""
        rows.append((each.id, each.priority, each.status, each.assignee or "", due, each.title))
    _print_table(("id", "priority", "status", "assignee", "due", "title"), rows, "task")


def entities(found: Sequence[Entity]) -> None:
    """Print a table with one row per entity."""
    rows = [(each.id, each.type, str(each.mention_count), each.name) for each in found]
    _print_table(("id", "type", "mentions", "name"), rows, "entity")


def board(out: Console, columns: Mapping[str, Iterable[Task]]) -> None:
    """Print a table with one column per status."""
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


def chain(found: Sequence[Decision]) -> None:
    """Print a tree of decisions: the oldest at the root, each successor below its predecessor."""
    from rich.text import Text
    from rich.tree import Tree

    out = console()
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
    """Print the statistics, one per line."""
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
        "most mentioned": _join_counts(found.most_mentioned),
        "tags": _join_counts(islice(found.tags.items(), 20)),
    }
    totals = ", ".join(_count_noun(count, noun) for noun, count in found.totals.items() if count) or "none"
    for label, text in ((name, totals), *lines.items()):
        out.print(Text(f"{label:<17} ", "bold") + Text(text))


def _join_counts(counted: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{one_line(what, 30)} ({count})" for what, count in counted) or "none"


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], noun: str) -> None:
    print_rows(headings, [[one_line(cell, 80) for cell in row] for row in rows])
    print("no entities" if not rows and noun == "entity" else _count_noun(len(rows), noun))


def _count_noun(count: int, noun: str) -> str:
    return plural(count, noun) if noun != "entity" else f"{count:,} {'entity' if count == 1 else 'entities'}"

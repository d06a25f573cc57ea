"""`redismem check`: whether what is stored agrees with itself. Reads, never writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from redismem import checking, queues
from redismem.calls import Command
from redismem.checking import Violation
from redismem.cli.measuring import CountingTransport
from redismem.cli.store import Store, looking
from redismem.cli.terminal import AsJson, Namespace, Url, console, plural, print_json, printable
from redismem.memory import Memory

if TYPE_CHECKING:
    from rich.progress import Progress

Limit = Annotated[int, Parameter(validator=validators.Number(gte=1), help="Violations listed; all are counted.")]


class _Reading(CountingTransport):
    """Remembers which sessions were read, and tells how many."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.transport)
        self.states: set[bytes | str | int] = set()
        self.advance: Callable[[int], None] = lambda _: None

    async def run(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        answers = await super().run(commands, timeout_s)
        self.states.update(command[1] for command in commands if command[0] == "HGETALL")
        self.advance(len(self.states))
        return answers


async def check(
    *, limit: Limit = 100, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False
) -> int:
    """Check every session of a namespace against the invariants.

    A session's messages, counters, summaries, queues, leases and expiry must agree with each other. Workers and appends
    may go on meanwhile. Nothing is written, and no text is printed. The settings must be those that the sessions are
    used with: thresholds, strategy and limits count.

    Exit code: 0 all of it agrees, 1 something does not.
    """
    async with looking(url, namespace) as (memory, store):
        reading = _Reading(store)
        listed = await memory.run(queues.counts(memory.keys), each=True)
        with _progress() as bar:
            task = bar.add_task("checking", total=sum(listed))
            reading.advance = lambda count: bar.update(task, completed=count)
            found = [violation async for violation in checking.check(Memory(reading, namespace, memory.settings))]
    if as_json:
        rows = [violation._asdict() for violation in found[:limit]]
        numbers = {"sessions_count": len(reading.states), "violations_count": len(found)}
        print_json({"store": store.name, "namespace": namespace, **numbers, "violations": rows, "good": not found})
    else:
        _report(found, limit, len(reading.states), f"namespace {namespace} on {store.name}")
    return 1 if found else 0


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty())


def _report(found: Sequence[Violation], limit: int, sessions_count: int, where: str) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    if found:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("rule", no_wrap=True, style="bold red")
        table.add_column("session", overflow="fold", max_width=36)
        table.add_column("what", overflow="fold")
        for violation in found[:limit]:
            what = violation.text.removeprefix(f"session {violation.session_id}: ")
            table.add_row(violation.invariant, Text(violation.session_id), Text(printable(what)))
        out.print(table)
    if len(found) > limit:
        out.print(f"and {len(found) - limit:,} more (--limit)")
    out.print(Text(f"{plural(sessions_count, 'session')} checked in {where}"))
    broken = len({violation.session_id for violation in found})
    verdict = f"{plural(len(found), 'violation')}, in {plural(broken, 'session')}" if found else "all of it agrees"
    out.print(Text(verdict, "bold red" if found else "bold green"))

"""`redismem doctor --deep`: test all stored sessions, projects and records against the invariants. Read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.cli.options import Target
from redismem.cli.place import open_read_only
from redismem.cli.terminal import console, print_rows, progress
from redismem.inspection.check import check as check_all
from redismem.inspection.figures import plural, printable
from redismem.inspection.invariants import Violation
from redismem.inspection.projects import check_projects
from redismem.inspection.records import check_records


@dataclass(frozen=True, slots=True)
class Checked:
    """The violations that a check of all data found, and the number of sessions."""

    sessions_count: int
    violations: Sequence[Violation]

    def document(self, limit: int) -> dict[str, Any]:
        """Return the numbers and the first violations as JSON values."""
        rows = [violation._asdict() for violation in self.violations[:limit]]
        return {"sessions_count": self.sessions_count, "violations_count": len(self.violations), "violations": rows}

    def report(self, limit: int) -> None:
        """Print the first violations as a table, and the numbers."""
        from rich.text import Text

        rows = []
        for violation in self.violations[:limit]:
            what = violation.text.removeprefix(f"session {violation.session_id}: ")
            rows.append([printable(violation.session_id), violation.invariant, printable(what)])
        print_rows(("session", "rule", "what"), rows)
        if len(self.violations) > limit:
            print(f"and {len(self.violations) - limit:,} more (--limit)")
        broken = len({violation.session_id for violation in self.violations})
        counts = f"{plural(len(self.violations), 'violation')}, in {plural(broken, 'session')}"
        verdict = counts if self.violations else "no violations"
        checked = f"{plural(self.sessions_count, 'session')} checked: "
        console().print(Text.assemble(checked, (verdict, "bold red" if self.violations else "bold green")))


async def check(on: Target) -> Checked:
    """Check every session, project and record of a namespace against the invariants.

    Raises:
        Stop: The namespace was never used, or Redis does not answer or refuses a call.
    """
    sessions_count = 0
    async with open_read_only(on.url, on.namespace) as (memory, _):
        with progress("sessions checked") as show:

            def advance(count: int) -> None:
                nonlocal sessions_count
                sessions_count += count
                show(sessions_count)

            found = [violation async for violation in check_all(memory.store, on_checked=advance)]
            found += [violation async for violation in check_projects(memory.store)]
            found += [violation async for violation in check_records(memory.store)]
    return Checked(sessions_count, found)

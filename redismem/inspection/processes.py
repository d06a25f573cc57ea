"""The processes with workers of a namespace, and the work that each does for all pods."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from redismem.inspection.work_rules import process_name, work_name
from redismem.store.depths import Depths


@dataclass(frozen=True, slots=True)
class Process:
    """A running process with workers."""

    name: str
    works: tuple[str, ...]
    """The kinds of work that it does for all pods. A process without any takes over if another one stops."""
    is_crowded: bool
    """True if there is more of this work than it can do, so that all processes help."""

    def document(self) -> dict[str, Any]:
        """Return the process as JSON values."""
        return asdict(self) | {"works": list(self.works)}


def processes_of(depths: Depths) -> list[Process]:
    """Return the running processes, those with work first."""
    living = {work: hold for work, hold in depths.ticking.holds.items() if hold.until_ms > depths.now_ms}
    processes = []
    for holder in {*depths.running, *(hold.holder for hold in living.values())}:
        works = sorted(work for work, hold in living.items() if hold.holder == holder)
        is_crowded = any(living[work].is_crowded for work in works)
        processes.append(Process(process_name(holder), tuple(map(work_name, works)), is_crowded))
    return sorted(processes, key=lambda process: (not process.works, process.name))

"""Background work: summaries, the session limit, the sweep, extraction for projects, and their scheduler.

The public names can be imported from here. They load on first use, because `Scheduler` needs APScheduler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redismem.workers.scheduler import Scheduler
    from redismem.workers.strategies import DROPPED, Dropped, Strategy

__all__ = ["DROPPED", "Dropped", "Scheduler", "Strategy"]

_STRATEGIES = "redismem.workers.strategies"
_MODULES = {
    "DROPPED": _STRATEGIES,
    "Dropped": _STRATEGIES,
    "Scheduler": "redismem.workers.scheduler",
    "Strategy": _STRATEGIES,
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

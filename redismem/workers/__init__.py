"""Background work: summaries, the session limit, the sweep, extraction for projects, and their scheduler.

`Scheduler` and `DROPPED` can be imported from here. They load on first use, because `Scheduler` needs APScheduler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redismem.workers.scheduler import Scheduler
    from redismem.workers.strategies import DROPPED

__all__ = ["DROPPED", "Scheduler"]

_MODULES = {"DROPPED": "redismem.workers.strategies", "Scheduler": "redismem.workers.scheduler"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

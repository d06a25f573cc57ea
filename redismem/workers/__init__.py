"""What runs off the path of a turn: summaries, the session limit, the sweep, and when each is looked at."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redismem.workers.scheduler import Scheduler
    from redismem.workers.strategies import DROPPED

__all__ = ["DROPPED", "Scheduler"]

_MODULES = {"DROPPED": "strategies", "Scheduler": "scheduler"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: commands that need no scheduler do not load APScheduler."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

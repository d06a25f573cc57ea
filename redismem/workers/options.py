"""The arguments of `Memory.connect` that are for its workers. Only workers need APScheduler, so it is imported late."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from redismem.errors import InvalidSettings
from redismem.store.store import Store
from redismem.transport.base import is_embedded

if TYPE_CHECKING:
    from redismem.workers.keeper import Workers


def worker_options(workers: bool | Callable[[Store], Workers], **options: object) -> dict[str, Any]:
    """Return the given ones of the arguments of `connect` that are for its workers.

    Raises:
        InvalidSettings: There are such arguments, but `workers` is not True, so nothing would use them.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if given and workers is not True:
        what = " and ".join(given)
        raise InvalidSettings(
            f"{what} without workers would have no effect: pass workers=True as well"
            if workers is False
            else f"{what} must be passed to your own workers, such as partial(Scheduler, {what.split()[0]}=...)"
        )
    return given


def make_workers(
    store: Store, workers: bool | Callable[[Store], Workers], options: Mapping[str, Any]
) -> Workers | None:
    """Return the workers for the argument `workers` of `connect`; `None` if it is False. Raise InvalidSettings."""
    if workers is False:
        return None
    if workers is True:
        from redismem.workers.scheduler import Scheduler

        # The embedded store itself works in this process, so that a child would save little.
        workers = partial(Scheduler, in_child=not is_embedded(store.transport), **options)
    elif not callable(workers):
        raise InvalidSettings(
            "workers must be True, False, or a callable that makes them from a store, such as "
            f"partial(Scheduler, stop_s=30); not {type(workers).__name__}"
        )
    from redismem.workers.keeper import Keeper

    return Keeper(store, partial(workers, store))

"""Run coroutines without an event loop. Over a blocking transport, a coroutine finishes without ever suspending."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. Raises the coroutine's errors, and RuntimeError if it suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError("a blocking transport suspended")


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Turn an async method into a blocking one. The blocking object has the async object in `_twin`."""

    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_without_loop(method(self._twin, *args, **kwargs))

    functools.update_wrapper(run, method)
    return run

"""Coroutines run without an event loop: over a transport that blocks when another would suspend, each ends at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns or raises; it must not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError("a blocking transport suspended")


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method without await."""

    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finished(method(self._twin, *args, **kwargs))

    functools.update_wrapper(run, method)
    return run

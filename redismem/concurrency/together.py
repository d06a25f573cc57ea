"""Run several coroutines at once where there is an event loop, and one after the other where calls block."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_all(works: Iterable[Coroutine[Any, Any, T]], *, blocks: bool) -> list[T]:
    """Return the results of all works, in their order. All of them run to their end, even if one of them fails.

    `blocks` is True for a transport whose calls never suspend: there may be no event loop.

    Raises:
        Exception: The error of the first work that failed.
    """
    results: list[T | BaseException] = []
    if blocks:
        for work in works:
            try:
                results.append(await work)
            except Exception as error:
                results.append(error)
    elif waiting := list(works):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done

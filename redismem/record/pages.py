"""Reads of all pages of a list, or of a record, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from redismem.protocol.record.reads import Found
    from redismem.record.record import Record


class _Listed(Protocol):
    @property
    def cursor(self) -> str | None: ...


class _Part(Protocol):
    @property
    def after(self) -> bytes | None: ...


L = TypeVar("L", bound=_Listed)
P = TypeVar("P", bound=_Part)


async def all_listed(read: Callable[[str | None], Awaitable[L]]) -> AsyncIterator[L]:
    """Yield each page of a list; `read` takes the cursor."""
    cursor: str | None = None
    while True:
        page = await read(cursor)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


async def all_parts(read: Callable[..., Awaitable[P]]) -> AsyncIterator[P]:
    """Yield each page of a record; `read(after=member)` begins behind that member."""
    after: bytes | None = None
    while True:
        page = await read(after=after)
        yield page
        after = page.after
        if after is None:
            return


async def all_members(
    record: Record, prefix: bytes, *, after: bytes | None = None, limit: int = 1_000, renew: bool = False
) -> AsyncIterator[Found]:
    """Yield each member of a record with a prefix, read `limit` at a time. The first read may renew its lifetime."""
    page = await record.page(prefix, after=after, limit=limit, renew=renew)
    while True:
        for found in page.found:
            yield found
        if page.after is None:
            return
        page = await record.page(prefix, after=page.after, limit=limit)

"""Read a page of a session."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from redismem.events import Op
from redismem.protocol.call import Call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session.page_reads import PageRange
from redismem.protocol.session.pages import MessagePage, Window


async def read_page(
    run: Callable[[Call[Any]], Coroutine[Any, Any, Any]], keys: SessionKeys, asked: PageRange, op: Op = Op.MESSAGES
) -> MessagePage | None:
    """Return a page of a session, or None if there is no session. Raises the errors of `run`."""
    found = await run(asked.call(keys, op))
    while isinstance(found, Window):
        asked = asked._replace(window=found)
        found = await run(asked.call(keys, op))
    page: MessagePage | None = found
    return page

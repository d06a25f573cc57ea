"""Read a window that may be too large for one reply, or a page of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

from redismem.errors import StoreUnavailable
from redismem.protocol.call import Call
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import View, window, window_by_script
from redismem.protocol.session.page_reads import PageRange, Reread
from redismem.protocol.session.pages import Page
from redismem.protocol.session.windows import Part, read_part, window_keys

T = TypeVar("T")
Transmit = Callable[[Call[Any], float], Awaitable[list[Any]]]
_LIMIT = 1_000
# The server was slow, or this process was: a shorter reply would come no sooner.
_LATE = frozenset(["TimeoutError", "StalledConnection"])


class LargeWindows:
    """The sessions whose window is read in parts, because a read of it whole ended in a closed connection.

    A server closes a connection on a reply over its output buffer limit, and all calls of the process with it. So such
    a read is not sent again as it was.
    """

    def __init__(self) -> None:
        self.session_ids: dict[str | None, None] = {}

    def __contains__(self, call: Call[Any]) -> bool:
        """True if the call reads a window in parts."""
        return call.session_id in self.session_ids and window_keys(call) is not None

    def note(self, call: Call[Any], failure: ServerError | ConnectionLost) -> None:
        """Remember the session of a call, if the call reads a window and its connection was closed."""
        if isinstance(failure, ConnectionLost) and failure.sent and failure.reason not in _LATE and window_keys(call):
            self.session_ids[call.session_id] = None
            if len(self.session_ids) > _LIMIT:
                self.session_ids.pop(next(iter(self.session_ids)), None)

    async def send(self, call: Call[Any], transmit: Transmit, timeout_s: float, deadline_s: float) -> list[Any]:
        """Send a call, but read its window in parts, and return its replies.

        Raises:
            ServerError: Redis replied with an error.
            ConnectionLost: Redis did not reply.
            RedismemError: A reply cannot be read.
        """
        keys, writes = window_keys(call), call.commands[:-2]
        assert keys is not None
        until = monotonic() + deadline_s

        async def run(part: Call[Any]) -> Any:
            return part.finish(await transmit(part, max(0.001, min(timeout_s, until - monotonic()))))

        def build(before: Part | None) -> Call[Any]:
            return read_part(call.session_id, *keys, lambda *whole: whole, before)

        write = replace(call, commands=writes)
        answers = await transmit(write, timeout_s) if writes else []
        if writes and type(answers[0]) is bytes:
            # Without the reads in its transaction, a new append is not told its seqs. A known one is.
            answers = await transmit(write.again(), timeout_s)
        whole, count = await read_parts(run, build)
        if count == 1:  # the window has become short, or another call was the reason
            self.session_ids.pop(call.session_id, None)
        return [*answers[: len(writes)], *whole, *answers[len(writes) :]]


async def read_parts(
    run: Callable[[Call[Any]], Coroutine[Any, Any, T | Part]], build: Callable[[Part | None], Call[Any]]
) -> tuple[T, int]:
    """Return what the calls of `build` read together, and their number. Raises the errors of `run`."""
    count, found = 1, await run(build(None))
    while isinstance(found, Part):
        count, found = count + 1, await run(build(found))
    return found, count


async def read_window(run: Callable[[Call[Any]], Coroutine[Any, Any, Any]], calls: SessionCalls) -> View | None:
    """Return the whole window and state of a session, or None if there is none. Raises the errors of `run`."""
    view: View | None
    try:
        view = await run(window(calls))
    except StoreUnavailable as refused:
        if refused.reason != "OOM":
            raise
        view, _ = await read_parts(run, lambda before: window_by_script(calls, before))
    return view


async def read_page(
    run: Callable[[Call[Any]], Coroutine[Any, Any, Any]], calls: SessionCalls, asked: PageRange
) -> Page | None:
    """Return a page of a session, or None if there is no session. Raises the errors of `run`.

    The page may end where the window begins, even if originals before it were asked for: see `Page.has_older`.
    """
    page: Page | Reread | None = Reread.BY_SCRIPT
    if (call := asked.native_call(calls.keys)) is not None:
        try:
            page = await run(call)
        except StoreUnavailable as refused:
            if refused.reason != "OOM":
                raise
    if not isinstance(page, Reread):
        return page
    by_script: Page | None = await run(calls.page(asked.limit, asked.before_seq, asked.include_originals))
    return by_script

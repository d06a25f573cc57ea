"""The claim of the namespace that runs write to, so that two of them never mix."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from redismem.cli.place import ChosenStore, open_memory
from redismem.cli.room import check_room
from redismem.cli.terminal import Stop, ask
from redismem.errors import Conflict
from redismem.inspection.erasing import erase_namespace
from redismem.memory.memory import Memory
from redismem.record.pages import all_listed

NAMESPACE = "redismem-tune"
_CLAIM = "run"
"""The session that says that a run is under way."""
# After a kill, what was written expires. A tool call of an ended conversation never gets its result.
PLAYED: dict[str, Any] = {"idle_timeout_s": 7_200, "open_call_s": 0, "embed": None}


@contextlib.asynccontextmanager
async def claimed(url: str | None, needed_bytes: int, *, replace: bool, yes: bool) -> AsyncIterator[ChosenStore]:
    """Claim the namespace of the runs, and remove the claim at the end.

    Raises:
        Stop: if another run is under way or was killed, unless `replace` is True; if Redis has not enough room.
    """
    async with open_memory(url, NAMESPACE, **PLAYED) as (memory, place):
        if place.embedded:
            yield place
            return
        claim = memory.session(_CLAIM)
        if replace and await claim.exists():
            ask(f"Remove what a run has left in namespace {NAMESPACE} on {place.name}?", yes=yes)
            await erase_namespace(memory.store, [*await _sessions(memory), _CLAIM])
        elif replace:
            await erase_namespace(memory.store, await _sessions(memory))
        try:
            await claim.append({"role": "user", "content": "a run is under way"}, expect=0)
        except Conflict:
            raise Stop(
                f"{place.name}: another run of tune is under way, or was killed within the last two hours; if it was, "
                "--replace removes what it left",
                2,
            ) from None
        try:
            await check_room(memory.store, place.name, needed_bytes, "Lower --conversations")
            yield place
        finally:
            await erase_namespace(memory.store, [_CLAIM])


async def _sessions(memory: Memory) -> list[str]:
    read = partial(memory.sessions, 10_000, include_idle=True)
    return [each.session_id async for page in all_listed(read) for each in page.sessions]

"""Load a script that a node does not know, and repeat the call that needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp

T = TypeVar("T")
Ask = Callable[[Command], Awaitable[ServerError | ConnectionLost | None]]
"""Runs a command by itself, and returns its failure; `None` if it succeeded."""


async def load_and_repeat(
    commands: Sequence[Command], script: Script, ask: Ask, run: Callable[[Sequence[Command]], Awaitable[T]]
) -> T:
    """Load the script, and run the commands again; if it may not be loaded, run them with its source.

    Only once per call, because another client may keep flushing scripts.

    Raises:
        ServerError: The server refused to load the script, or this user may neither load nor send it.
        ConnectionLost: No reply came.
    """
    failure = await ask(("SCRIPT", "LOAD", script.source))
    if failure is None:
        return await run(commands)
    if not resp.is_command_refused(failure):
        raise failure
    failure = await ask(resp.EVAL_PROBE)
    if isinstance(failure, ConnectionLost):
        raise failure
    if resp.is_command_refused(failure):
        raise resp.may_not_load()
    return await run(resp.with_source(commands, script))

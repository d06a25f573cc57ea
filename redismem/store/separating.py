"""Send the commands of a call one by one: a Redis whose memory is full refuses every transaction, also one of reads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from redismem.protocol.call import Call
from redismem.protocol.server_errors import ConnectionLost, ServerError

T = TypeVar("T")


def must_separate(call: Call[Any], failure: ServerError | ConnectionLost) -> bool:
    """True if Redis has refused the call because it is a transaction, and its commands may be sent one by one."""
    is_full = isinstance(failure, ServerError) and failure.word == "OOM"
    return is_full and call.is_separable and len(call.commands) > 1


async def send_separately(send: Callable[[Call[Any]], Coroutine[Any, Any, Any]], call: Call[T]) -> T:
    """Send each command as a call of its own, in order, and return the value of the call.

    Raises the errors of `send`.
    """
    answers = []
    for command in call.commands:
        script = call.script if command[0] == "EVALSHA" else None
        answers.append(await send(replace(call, commands=(command,), decode=lambda answer: answer, script=script)))
    return call.finish(answers)

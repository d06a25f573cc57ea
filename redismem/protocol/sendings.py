"""Give a resent call a new sending, which overtakes the earlier ones. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from redismem.protocol.call import Call, Command, Resend
from redismem.protocol.ids import SENDING, resending


def resend(keys_count: int, argument: int) -> Resend:
    """Return a function that marks a command of `evalsha` as resent.

    `argument` is the index of its token.
    """
    return partial(_resend, 3 + keys_count + argument)


def _resend(place: int, commands: tuple[Command, ...], *, is_sent: bool) -> tuple[Command, ...]:
    if not is_sent:
        return commands
    command, *others = commands
    return (*command[:place], renew(command[place]), *command[place + 1 :]), *others


def renew(token: bytes | str | int) -> bytes:
    """Return a token with a new sending."""
    assert isinstance(token, bytes)
    return token[: SENDING.start] + resending() + token[SENDING.stop :]


def fenced_keys(call: Call[Any]) -> Sequence[bytes]:
    """Return the keys in which the script of a call notes its sending: a session's state, or records."""
    if call.resent is None:
        return ()
    command = call.commands[0]
    keys = cast("Sequence[bytes]", command[3 : 3 + int(command[2])])
    return keys[1:2] if call.session_id is not None else keys[2::2]

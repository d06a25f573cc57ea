"""Give a resent call a new sending, which overtakes the earlier ones. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from redismem.events import Op
from redismem.protocol.call import Call, Command, Resend
from redismem.protocol.ids import SENDING_AT, SENDING_BYTES, resending


def resend(keys_count: int, argument: int, at: int = SENDING_AT) -> Resend:
    """Return a function that marks a command of `evalsha` as resent.

    `argument` is the index of its token, or of another argument with the sending from byte `at` on.
    """
    return partial(_resend, 3 + keys_count + argument, at)


def _resend(place: int, at: int, commands: tuple[Command, ...], *, is_sent: bool) -> tuple[Command, ...]:
    if not is_sent:
        return commands
    command, *others = commands
    return (*command[:place], renew(command[place], at), *command[place + 1 :]), *others


def renew(token: bytes | str | int, at: int = SENDING_AT) -> bytes:
    """Return a token with a new sending."""
    assert isinstance(token, bytes)
    return token[:at] + resending() + token[at + SENDING_BYTES :]


def fenced_keys(call: Call[Any]) -> Sequence[bytes]:
    """Return the keys in which the script of a call notes its sending: a session's state, or records."""
    if call.append is not None:
        return (call.append.head.keys.state,)
    if call.named is not None and call.sending_name is not None:
        found = [call.named[name] for name in ("state", "record") if name in call.named]
        return found or call.named["more_keys"][::2]
    if call.resent is None:
        return ()
    command = call.commands[0]
    keys = cast("Sequence[bytes]", command[3 : 3 + int(command[2])])
    if call.session_id is not None:
        return keys[1:2]
    return keys[:1] if call.op is Op.RECORD_DROP else keys[2::2]

"""Encode calls as bytes and decode the replies, for both kinds of lanes. No I/O.

A call is encoded as bytes, with the number of its replies, which come in order. A transaction of n commands has n + 2
replies: +OK, one +QUEUED per command, then an array with the replies of all commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import hiredis

from redismem.protocol.call import Command
from redismem.protocol.permissions import decode_refused_command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError

Outcome = list[Any] | ServerError | ConnectionLost

NOTHING = object()
"""Returned by a reader if no reply is complete yet. (Its default is False, which is also a RESP3 reply.)"""

# hiredis declares a narrower type than it takes.
_pack_words: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]
_MULTI = _pack_words(("MULTI",))
_EXEC = _pack_words(("EXEC",))
_REMEMBERED_COUNT = 4_096
_KEYS_AT = 3  # behind EVALSHA, the script's hash and the number of keys
# The error of a server with too many clients, which then closes the connection without running a command.
_CROWDED = "ERR max number of clients reached"
# First bytes of replies in RESP2 and RESP3.
_REPLY_TYPES = frozenset(b"+-:$*_,#!=(%~>|")
# Text in the error of EXEC before the error that caused it.
_BECAUSE = "Transaction discarded because of: "


class OutOfStep(Exception):
    """A reply that cannot belong to the commands sent: the connection must be closed."""


def server_error(text: str) -> ServerError:
    """Return the error of an error reply, without the arguments that the reply to an unknown command quotes."""
    return ServerError(text.partition(" ")[0], text.partition(", with args beginning with")[0])


def reader() -> hiredis.Reader:
    """Return a reader of replies: bytes, int, list, dict, None …; ServerError for an error reply; or NOTHING."""
    return hiredis.Reader(replyError=server_error, notEnoughData=NOTHING)


def is_foreign(beginning: bytes) -> bool:
    """True if the first bytes from a server are not a Redis reply."""
    return beginning[0] not in _REPLY_TYPES


def foreign_server() -> ConnectionLost:
    """Return the error of a call to a server that is not Redis, and therefore cannot have run the call."""
    text = "the server there is not a Redis: is it the port of something else, such as HTTP?"
    return ConnectionLost(hiredis.ProtocolError.__name__, sent=False, text=text, lasts=True)


def encode_transaction(commands: Sequence[Command]) -> bytes:
    """Encode commands as one MULTI/EXEC. Redis runs either all commands or none."""
    if commands[0][0] == "EVALSHA":
        return b"".join((_MULTI, encode(commands[0]), _packed_reads(tuple(commands[1:])), _EXEC))
    return b"".join((_MULTI, *map(encode, commands), _EXEC))


def encode(command: Command) -> bytes:
    """Encode a command as hiredis does. The words of a script call up to its keys are cached."""
    if command[0] != "EVALSHA":
        return _pack_words(command)
    arguments_at = _KEYS_AT + int(command[2])
    pieces = [b"*%d" % len(command), _packed_head(command[:arguments_at])]
    for argument in command[arguments_at:]:
        word = argument if type(argument) is bytes else str(argument).encode()
        pieces += _length(len(word)), word
    pieces.append(b"\r\n")
    return b"".join(pieces)


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _packed_head(words: Command) -> bytes:
    """Encode a script and its keys. They are most words of a call, and are equal in each call about a session."""
    packed = _pack_words(words)
    return packed[packed.index(b"\r") : -2]


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _length(length: int) -> bytes:
    """Encode the separator between one word and the next."""
    return b"\r\n$%d\r\n" % length


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _packed_reads(commands: tuple[Command, ...]) -> bytes:
    """Encode the reads after a script, which are equal in each call about a session."""
    return b"".join(map(encode, commands))


def encode_independent(commands: Sequence[Command]) -> bytes:
    """Encode commands that do not depend on each other."""
    return b"".join(map(encode, commands))


def check_replies(replies: list[Any]) -> Outcome:
    """Return the replies to independent commands.

    Raises:
        OutOfStep: A push message is among the replies, although a lane never subscribes to any.
    """
    for reply in replies:
        if type(reply) is hiredis.PushNotification:
            raise OutOfStep("a push message without a subscription")
    first = replies[0]
    return ConnectionLost(_CROWDED, sent=False) if is_crowded(first) else replies


def unpack_transaction(replies: list[Any]) -> Outcome:
    """Return one reply per command of a transaction, or the error of the first refused command, or else of EXEC.

    Raises:
        OutOfStep: The replies are not those of a transaction.
    """
    executed = replies[-1]
    if type(executed) is list and replies[:-1] == _queued_replies(len(executed)):
        return executed
    if not isinstance(executed, ServerError):
        raise OutOfStep("replies that do not belong to a transaction")
    refused = next(reply for reply in replies if isinstance(reply, ServerError))
    if is_crowded(refused):
        return ConnectionLost(_CROWDED, sent=False)
    reason = refused.text.partition(_BECAUSE)[2]
    return server_error(reason) if reason else refused


@cache
def _queued_replies(count: int) -> list[bytes]:
    return [b"OK", *[b"QUEUED"] * count]


def is_crowded(reply: Any) -> bool:
    """True if the server has too many clients: it closes the connection without running a command."""
    return isinstance(reply, ServerError) and reply.text == _CROWDED


def refusal(outcome: Outcome) -> ServerError | None:
    """Return the error in reply to the first command, or to all commands; `None` if there is no error."""
    first = outcome[0] if isinstance(outcome, list) else outcome
    return first if isinstance(first, ServerError) else None


class Pending:
    """A call that waits for its replies. If its caller was cancelled, its future is already done."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[list[Any]]) -> None:
        self.future = future

    def end(self, outcome: Outcome) -> None:
        """Give the call its outcome."""
        future = self.future
        if future.done():
            return
        if isinstance(outcome, list):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
            future.exception()  # otherwise asyncio logs an error that is never retrieved


def replies_or_raise(outcome: Outcome) -> list[Any]:
    """Return the replies, or raise the error if there is one instead."""
    if isinstance(outcome, list):
        return outcome
    raise outcome


def encode_load(script: Script) -> bytes:
    """Encode the command that loads a script. It has one reply."""
    return _pack_words(("SCRIPT", "LOAD", script.source))


EVAL_PROBE: Command = ("EVAL", "return 0", 0)
"""Shows whether EVAL is allowed, without the source of a script and a WAIT behind it."""


def is_command_refused(refused: ServerError | ConnectionLost | None) -> bool:
    """True if the user may not run the command, or the server does not have it."""
    return isinstance(refused, ServerError) and decode_refused_command(refused, None) is not None


def with_source(commands: Sequence[Command], script: Script) -> list[Command]:
    """Return the commands with EVAL and the source of the script, for a server that does not let it be loaded."""
    return [("EVAL", script.source, *commands[0][2:]), *commands[1:]]


def encode_source(content: bytes, script: Script) -> bytes:
    """Return an encoded call with EVAL and the source of the script in place of EVALSHA and its hash."""
    by_hash = b"$7\r\nEVALSHA\r\n$%d\r\n%b\r\n" % (len(script.sha), script.sha)
    return content.replace(by_hash, b"$4\r\nEVAL\r\n$%d\r\n%b\r\n" % (len(script.source), script.source), 1)


def loaded_late() -> ServerError:
    """Return the error of a call whose script is loaded now, but that has too little time left for another reply."""
    return ServerError("NOSCRIPT", "NOSCRIPT the script is loaded now")


def may_not_load() -> ServerError:
    """Return the error of a call whose script is unknown, and may neither be loaded nor sent."""
    why = "the server does not know the scripts, and this user may not load them: run `redismem repair scripts`"
    return ServerError("NOSCRIPT", f"NOSCRIPT {why}")


def check_greeting(outcome: Outcome, opening: Sequence[Command]) -> None:
    """Check the replies to a greeting. A connection needs no name.

    Raises:
        ServerError: An error reply, such as NOAUTH, WRONGPASS or NOPERM; READONLY if the server's ROLE is not primary.
        ConnectionLost: No reply came.
    """
    if not isinstance(outcome, list):
        raise outcome
    for command, reply in zip(opening, outcome, strict=True):
        if isinstance(reply, ServerError) and not (command[0] == "CLIENT" and is_command_refused(reply)):
            raise reply
        if isinstance(reply, list) and reply[0] != b"master":
            raise ServerError("READONLY", "READONLY it is a replica")

"""Calls as bytes, and what comes back as replies; the same for a lane and a blocking one. No I/O.

One call is some bytes and a number of replies to them, in order. A transaction of n commands has n + 2: +OK, +QUEUED
for each command, then the replies of all of them in one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import hiredis

from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError

Outcome = list[Any] | ServerError | ConnectionLost

NOTHING = object()
"""What a reader gives if no whole reply has come yet. (Its own default is False, which is also a RESP3 reply.)"""

# hiredis' own types know only commands of one word.
_pack_words: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]
_MULTI = _pack_words(("MULTI",))
_EXEC = _pack_words(("EXEC",))
_REMEMBERED_COUNT = 4_096
_KEYS_AT = 3  # behind EVALSHA, the script's hash and the number of keys
# Said to a new connection, whatever it asks, before it is closed: nothing has been run.
_CROWDED = "ERR max number of clients reached"
# How replies begin, in RESP2 and RESP3.
_REPLY_TYPES = frozenset(b"+-:$*_,#!=(%~>|")
# EXEC's own refusal names what really stood in the way behind these words.
_BECAUSE = "Transaction discarded because of: "


class OutOfStep(Exception):
    """A reply that cannot be the answer to what was sent: the connection is of no use any more."""


def server_error(text: str) -> ServerError:
    """An error reply, its word and its text; without the arguments that an unknown command is answered with."""
    return ServerError(text.partition(" ")[0], text.partition(", with args beginning with")[0])


def reader() -> hiredis.Reader:
    """Error replies come out as ServerError, replies as bytes, int, list, dict, None …, or NOTHING."""
    return hiredis.Reader(replyError=server_error, notEnoughData=NOTHING)


def is_foreign(beginning: bytes) -> bool:
    """Whether what comes first on a connection cannot be of Redis."""
    return beginning[0] not in _REPLY_TYPES


def foreign() -> ConnectionLost:
    """What a call is answered with then. Nobody there can have carried it out."""
    text = "what answers there does not speak Redis: is it the port of something else, such as HTTP?"
    return ConnectionLost(hiredis.ProtocolError.__name__, sent=False, text=text, lasts=True)


def transaction(commands: Sequence[Command]) -> bytes:
    """All of them or none, in one MULTI/EXEC."""
    if commands[0][0] == "EVALSHA":
        return b"".join((_MULTI, _pack(commands[0]), _packed_reads(tuple(commands[1:])), _EXEC))
    return b"".join((_MULTI, *map(_pack, commands), _EXEC))


def _pack(command: Command) -> bytes:
    """The bytes that hiredis makes of it; of a script's call, only what stands behind the keys is packed anew."""
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
    """A script and its keys: most of a call's words, and the same ones whenever it is the same session."""
    packed = _pack_words(words)
    return packed[packed.index(b"\r") : -2]


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _length(length: int) -> bytes:
    """What stands between a word and the next."""
    return b"\r\n$%d\r\n" % length


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _packed_reads(commands: tuple[Command, ...]) -> bytes:
    """What is read behind a script's call: the same whenever it is the same session."""
    return b"".join(map(_pack, commands))


def independent(commands: Sequence[Command]) -> bytes:
    return b"".join(map(_pack, commands))


def answers(replies: list[Any]) -> Outcome:
    """The replies to independent commands. Raises OutOfStep."""
    for reply in replies:
        if type(reply) is hiredis.PushNotification:
            raise OutOfStep("a message that nobody asked for")
    first = replies[0]
    return ConnectionLost(_CROWDED, sent=False) if _is_crowded(first) else replies


def transaction_answers(replies: list[Any]) -> Outcome:
    """One reply a command, or why there is none: the first command that was refused, else EXEC. Raises OutOfStep."""
    executed = replies[-1]
    if type(executed) is list and replies[:-1] == _accepted(len(executed)):
        return executed
    if not isinstance(executed, ServerError):
        raise OutOfStep("a transaction was answered with something else")
    refused = next(reply for reply in replies if isinstance(reply, ServerError))
    if _is_crowded(refused):
        return ConnectionLost(_CROWDED, sent=False)
    reason = refused.text.partition(_BECAUSE)[2]
    return server_error(reason) if reason else refused


@cache
def _accepted(count: int) -> list[bytes]:
    return [b"OK", *[b"QUEUED"] * count]


def _is_crowded(reply: Any) -> bool:
    return isinstance(reply, ServerError) and reply.text == _CROWDED


def refusal(outcome: Outcome) -> ServerError | None:
    """The error that the first command was answered with, or all of them."""
    first = outcome[0] if isinstance(outcome, list) else outcome
    return first if isinstance(first, ServerError) else None


def loading(script: Script) -> bytes:
    """What makes a node know a script. One reply."""
    return _pack_words(("SCRIPT", "LOAD", script.source))


def unloadable(refused: ServerError) -> ServerError:
    """What a call is answered with whose script could not be loaded. Who may not load any waits for those who may."""
    if refused.word != "NOPERM":
        return refused
    why = "the server does not know the scripts, and this user may not load them: run `redismem deploy`"
    return ServerError("NOSCRIPT", f"NOSCRIPT {why}")


def let_in(outcome: Outcome) -> None:
    """Raises the error that a greeting was answered with: NOAUTH, WRONGPASS, NOPERM …, or that none came.

    READONLY if the server was asked for its role, and is no primary.
    """
    for reply in outcome if isinstance(outcome, list) else [outcome]:
        if isinstance(reply, ServerError | ConnectionLost):
            raise reply
        if isinstance(reply, list) and reply[0] != b"master":
            raise ServerError("READONLY", "READONLY it is a replica")

"""What redis-py makes of replies, turned back into replies; and what it is sent if replicas are to confirm it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from redismem.errors import InvalidSettings
from redismem.protocol.call import Command
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.redis_py.given_client import is_embedded
from redismem.transport.replicas import Wanted

# redis-py turns these replies into classes and drops their first word.
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (redis.exceptions.NoScriptError, "NOSCRIPT"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.AskError, "ASK"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.ExecAbortError, "EXECABORT"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (redis.exceptions.AuthenticationWrongNumberOfArgsError, "WRONGPASS"),
    (redis.exceptions.AuthenticationError, "NOAUTH"),
)


def server_error(error: Exception) -> ServerError | ConnectionLost:
    """The reply behind a redis-py exception. Drops the text of errors that redis-py annotates with the arguments."""
    for kind, word in _WORDS:
        if isinstance(error, kind):
            if word == "NOAUTH" and "username-password" in str(error):
                word = "WRONGPASS"  # the same class
            return ServerError(word, f"{word} {reason(error)}" if word == "NOPERM" else word)
    if isinstance(error, redis.exceptions.DataError):
        raise error
    if isinstance(error, redis.exceptions.ResponseError):
        text = reason(error)
        if text == "EXEC without MULTI":
            # Nobody refuses MULTI but the ACL, and redis-py raises what came of it.
            return ServerError("NOPERM", "NOPERM no permissions to run the 'multi' command")
        word = text.partition(" ")[0]
        return ServerError(word if word.isupper() else "ERR", text)  # redis-py drops ERR
    return ConnectionLost(type(error).__name__)


def reason(error: Exception) -> str:
    """What the server said, without the arguments that a pipeline puts before it."""
    text = str(error)
    if text.startswith("Command #"):
        # redis.asyncio writes the repr of a tuple there.
        text = text.rpartition("caused error: ")[2].lstrip("('\"")
    return text


def translated(answers: Sequence[Any]) -> list[Any]:
    """The replies, errors among them as ServerError or ConnectionLost."""
    return [server_error(answer) if isinstance(answer, Exception) else answer for answer in answers]


def word_of(answers: Sequence[Any]) -> str:
    """The word of the error that the first command was answered with; "" for any other answer."""
    return answers[0].word if isinstance(answers[0], ServerError) else ""


def check_replicas(client: Any) -> None:
    """Raises InvalidSettings if nobody could confirm anything."""
    if is_embedded(client):
        raise InvalidSettings("confirm asks for replicas, and the embedded store has none: name a Redis")
    if getattr(client, "connection_pool", None) is None:
        # Its pipeline puts a WAIT on any connection, which would say yes to what another has written.
        raise InvalidSettings("confirm does not work over a redis-py cluster client: give the URL instead of a client")


def with_wait(commands: Sequence[Command], wanted: Wanted) -> list[Command]:
    """Commands that a pipeline sends over one connection, in this order."""
    wait = ("WAIT", wanted.replicas, max(1, int(wanted.wait_s * 1000)))
    return [*commands, wait] if len(commands) == 1 else [("MULTI",), *commands, ("EXEC",), wait]


def taken_apart(commands: Sequence[Command], answers: list[Any]) -> list[Any]:
    """One reply a command, and that of WAIT. Raises the ServerError that stood in a transaction's way."""
    if len(commands) == 1:
        return answers
    executed, replicas = answers[-2:]
    if isinstance(executed, list):
        return [*translated(executed), replicas]
    raise next(answer for answer in answers if isinstance(answer, ServerError))

"""Turn redis-py's exceptions back into replies, and add WAIT to commands that replicas must confirm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from redismem.errors import InvalidSettings
from redismem.protocol.call import Command
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.base import reason_of
from redismem.transport.redis_py.given_client import is_embedded
from redismem.transport.replicas import Wanted

# redis-py turns these replies into exception classes and drops their first word.
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
    """Return the error reply behind a redis-py exception, without the arguments that redis-py adds to the text."""
    for kind, word in _WORDS:
        if isinstance(error, kind):
            if word == "NOAUTH" and "username-password" in str(error):
                word = "WRONGPASS"  # redis-py has one class for both
            return ServerError(word, f"{word} {reason(error)}" if word == "NOPERM" else word)
    if isinstance(error, redis.exceptions.DataError):
        raise error
    if isinstance(error, redis.exceptions.ResponseError):
        text = reason(error)
        if text == "EXEC without MULTI":
            # Only an ACL refuses MULTI; redis-py raises the error of EXEC instead.
            return ServerError("NOPERM", "NOPERM no permissions to run the 'multi' command")
        word = text.partition(" ")[0]
        return ServerError(word if word.isupper() else "ERR", text)  # redis-py drops ERR
    return ConnectionLost(reason_of(error))


def reason(error: Exception) -> str:
    """Return the server's text, without the arguments that a pipeline puts before it."""
    text = str(error)
    if text.startswith("Command #"):
        # redis.asyncio writes the repr of a tuple there.
        text = text.rpartition("caused error: ")[2].lstrip("('\"")
    return text.partition(", with args beginning with")[0]


def translate_errors(answers: Sequence[Any]) -> list[Any]:
    """Return the replies, with ServerError or ConnectionLost for each exception."""
    return [server_error(answer) if isinstance(answer, Exception) else answer for answer in answers]


def word_of(answers: Sequence[Any]) -> str:
    """Return the first word of an error in reply to the first command; "" if there is none."""
    return answers[0].word if answers and isinstance(answers[0], ServerError) else ""


def check_replicas(client: Any) -> None:
    """Check that replicas can confirm a write.

    Raises:
        InvalidSettings: The client is an embedded store or a cluster client.
    """
    if is_embedded(client):
        raise InvalidSettings("confirm needs replicas, and the embedded store has none: name a Redis")
    if getattr(client, "connection_pool", None) is None:
        # Its pipeline may send the WAIT on another connection, where it would confirm other writes.
        raise InvalidSettings("confirm does not work over a redis-py cluster client: give the URL instead of a client")


def as_transaction(commands: Sequence[Command]) -> list[Command]:
    """Return the commands between MULTI and EXEC, for a pipeline over one connection."""
    return [("MULTI",), *commands, ("EXEC",)]


def unpack_transaction(answers: list[Any]) -> list[Any]:
    """Return one reply per command of `as_transaction`.

    Raises:
        ServerError: The transaction was refused.
    """
    if isinstance(answers[-1], list):
        return translate_errors(answers[-1])
    raise next(answer for answer in answers if isinstance(answer, ServerError))


def with_wait(commands: Sequence[Command], wanted: Wanted) -> list[Command]:
    """Return the commands followed by a WAIT, for a pipeline over one connection."""
    wait = ("WAIT", wanted.replicas, max(1, int(wanted.wait_s * 1000)))
    return [*commands, wait] if len(commands) == 1 else [*as_transaction(commands), wait]


def split_replies(commands: Sequence[Command], answers: list[Any]) -> list[Any]:
    """Return one reply per command, followed by the reply of WAIT.

    Raises:
        ServerError: The transaction was refused.
    """
    if len(commands) == 1:
        return answers
    return [*unpack_transaction(answers[:-1]), answers[-1]]

"""A transport for tests that make a hundred thousand calls: one blocking socket, nothing in between."""

from __future__ import annotations

import socket
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import hiredis

from redismem.errors import ServerError
from redismem.protocol.call import Command
from redismem.protocol.scripts import Script

T = TypeVar("T")
_MISSING = object()


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine over this transport returns or raises: it never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it suspended")


class Wire:
    repeats = False

    def __init__(self, port: int) -> None:
        self._port = port
        self.connect()

    def connect(self) -> None:
        """Also again, after the server was gone."""
        if hasattr(self, "_socket"):
            self._socket.close()
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader(replyError=_error, notEnoughData=_MISSING)

    def send(self, *commands: Command) -> list[Any]:
        """The reply of each command; errors in their places."""
        self._socket.sendall(b"".join(hiredis.pack_command(command) for command in commands))  # type: ignore[arg-type]
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._reader.gets()
            if reply is _MISSING:
                self._reader.feed(self._socket.recv(1 << 16))
            else:
                replies.append(reply)
        return replies

    async def run(self, commands: Sequence[Command], timeout_s: float, script: Script | None = None) -> list[Any]:
        answers = self._run(commands)
        if script is not None and isinstance(answers[0], ServerError) and answers[0].word == "NOSCRIPT":
            self.send(("SCRIPT", "LOAD", script.source))
            answers = self._run(commands)
        return answers

    def _run(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:
            return self.send(commands[0])
        executed = self.send(("MULTI",), *commands, ("EXEC",))[-1]
        assert isinstance(executed, list), executed
        return executed

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        return self.send(*commands)

    async def sleep(self, seconds: float) -> None:
        """Nothing gets better by waiting for it here."""

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()


def _error(text: str) -> ServerError:
    return ServerError(text.partition(" ")[0], text)

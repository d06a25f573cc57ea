"""User and password that change while the process runs. They are asked for before each greeting.

The caller's function may block, and may be async. It runs in a thread of its own, which never keeps the event loop or
the end of the process waiting. No error or log line quotes what it returns, or the text of its exception.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from redismem.concurrency import forks
from redismem.concurrency.callbacks import run_callback
from redismem.errors import InvalidSettings
from redismem.events import facts, unquoted
from redismem.protocol.server_errors import ConnectionLost
from redismem.settings.settings import Settings

log = logging.getLogger("redismem")

Login = tuple[str | None, str]
"""User and password. `None` means the user in the URL, or else the default user."""
Credentials = Callable[[], Login | Awaitable[Login]]

FAILED = "CredentialsFailed"
"""The reason of a `StoreUnavailable` if user and password could not be had."""
# A call to a token service may take longer than a reply of Redis. The lane's calls retry meanwhile.
_LONGEST_S = 10.0
# A function that never returns would otherwise leave a thread behind for each attempt to connect.
_LATE_S = 60.0
_MOST_BYTES = 16 * 1024


class _Unusable(Exception):
    """A login that cannot be used. Its text quotes no part of the login."""


class Asker:
    """Asks a function for the login of the next connection."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._complaint = ""
        self.reset()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Ask anew in a forked process, where the threads of the parent's questions do not run."""
        self._late: Future[Any] | None = None
        self._ask_again_at_s = 0.0

    async def login(self) -> Login:
        """Return the login, within 10 s. An async function runs on this event loop.

        Raises:
            ConnectionLost: The function failed, or returned no login.
        """
        answer, limit = self._ask(self._credentials), asyncio.timeout(_LONGEST_S)
        try:
            async with limit:
                given = await asyncio.wrap_future(answer)
                return self._check(await run_callback(lambda: given) if inspect.isawaitable(given) else given)
        except asyncio.CancelledError:
            answer.add_done_callback(_close)
            raise
        except Exception as error:
            raise self._failure(error, answer, is_late=limit.expired()) from None

    def login_blocking(self, until: float) -> Login:
        """Return the login, until this monotonic time. An async function runs on an event loop of its own.

        Raises:
            ConnectionLost: The function failed, or returned no login in time.
        """
        answer = self._ask(self._finish)
        try:
            return self._check(answer.result(max(0.0, until - time.monotonic())))
        except Exception as error:
            raise self._failure(error, answer, is_late=not answer.done()) from None

    def _ask(self, call: Callable[[], Any]) -> Future[Any]:
        """Call the function in a thread, unless a call that was given up in the last minute still runs."""
        if (late := self._late) is not None and not late.done() and time.monotonic() < self._ask_again_at_s:
            return late
        return _in_a_thread(call)

    def _finish(self) -> Any:
        async def wait_for(given: Awaitable[Any]) -> Any:
            async with asyncio.timeout(_LONGEST_S):
                return await given

        given = self._credentials()
        return asyncio.run(wait_for(given)) if inspect.isawaitable(given) else given

    def _check(self, given: Any) -> Login:
        if not isinstance(given, tuple) or len(given) != 2:
            raise _Unusable(f"credentials() returned {type(given).__name__}, not a tuple of user or None and password")
        username, password = given
        if not isinstance(username, str | None) or not isinstance(password, str):
            kinds = f"{type(username).__name__} and {type(password).__name__}"
            raise _Unusable(f"credentials() returned {kinds}, not a str or None as user and a str as password")
        if not password or username == "":
            raise _Unusable(f"credentials() returned an empty {'user' if password else 'password'}")
        if max(len(password), len(username or "")) > _MOST_BYTES:
            raise _Unusable("credentials() returned a user or password of more than 16 KiB")
        try:
            f"{username}{password}".encode()
        except UnicodeEncodeError:
            raise _Unusable("credentials() returned a user or password with half a surrogate pair") from None
        self._complaint = ""
        return username, password

    def _failure(self, error: Exception, answer: Future[Any], *, is_late: bool) -> ConnectionLost:
        """Return the error of the connection, and log a new one: with the fallback, no caller sees it."""
        if not answer.done() and answer is not self._late:
            self._late, self._ask_again_at_s = answer, time.monotonic() + _LATE_S
        text = f"credentials() raised {_place_of(error)}"
        if is_late:
            text = "credentials() did not return in time"
        elif isinstance(error, _Unusable):
            text = str(error)
        if text != self._complaint:
            self._complaint = text
            log.warning("no user and password for Redis: %s", text, extra=facts(op="connect", error=FAILED))
        return ConnectionLost(FAILED, sent=False, text=text)


def _place_of(error: Exception) -> str:
    """Return type and origin of an error. Its text may quote a secret."""
    name, trace = type(error).__name__, error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return name if trace is None else f"{name} in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _close(answer: Future[Any]) -> None:
    """Close a coroutine that nobody awaits any more."""
    if not answer.cancelled() and answer.exception() is None and inspect.iscoroutine(given := answer.result()):
        given.close()


def _in_a_thread(call: Callable[[], Any]) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_running_or_notify_cancel()  # from now on it cannot be cancelled, only ignored

    def run() -> None:
        try:
            answer.set_result(call())
        except _Unusable as error:
            answer.set_exception(error)
        except BaseException as error:  # a StopIteration or CancelledError, too, means more to a future than a failure
            answer.set_exception(unquoted(error))

    threading.Thread(target=run, name="redismem-credentials", daemon=True).start()
    return answer


def make_asker(credentials: Credentials | None, settings: Settings) -> Asker | None:
    """Return the asker for this function, else for the password file of the settings; `None` if there is neither.

    Raises:
        InvalidSettings: The function cannot be called, or the file holds no password.
    """
    if credentials is not None:
        if not callable(credentials):
            raise InvalidSettings(f"credentials must be a function, not one of the type {type(credentials).__name__}")
        return Asker(credentials)
    path, username = settings.password_file, settings.username
    if path is None:
        if username is not None:
            raise InvalidSettings("REDISMEM_USERNAME needs REDISMEM_PASSWORD_FILE; else name the user in the URL")
        return None
    if username == "":
        raise InvalidSettings("REDISMEM_USERNAME is empty: leave it out for the default user, or the user in the URL")
    if path == "":
        raise InvalidSettings("REDISMEM_PASSWORD_FILE is empty: name a file, or leave it out")
    try:
        _read_password(path)
    except _Unusable as unusable:
        raise InvalidSettings(str(unusable)) from None
    return Asker(lambda: (username, _read_password(path)))


def _read_password(path: str) -> str:
    """Return the content of the file without its last newline. Raises _Unusable.

    The error does not quote the path, because the password may have been given in its place.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        password = content.decode().rstrip("\r\n")
    except (OSError, ValueError) as unreadable:
        hint = "" if os.sep in path else ": it must be the path of a file, not the password"
        raise _Unusable(f"REDISMEM_PASSWORD_FILE cannot be read, {type(unreadable).__name__}{hint}") from None
    if not password.strip():
        raise _Unusable("the file of REDISMEM_PASSWORD_FILE is empty")
    if len(content) > _MOST_BYTES or "\n" in password:
        raise _Unusable("the file of REDISMEM_PASSWORD_FILE must hold one line, the password, and nothing else")
    return password

"""A child process that answers requests, one at a time, at a lower priority than this process.

It runs a module of redismem, never the caller's program, and gets requests and replies over pipes alone. It ends when
this process ends, because its pipe is then closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from redismem.concurrency import forks

_LENGTH = struct.Struct(">Q")
_NICE = 10
_FAILED, _DONE = b"\0", b"\1"
_PYTHONS = ("python", "pypy")
# The parent may have found redismem in a folder that a new Python does not search.
_RUN = "import runpy, sys; sys.path[:] = sys.argv[2:]; runpy.run_module(sys.argv[1], run_name='__main__')"


class ChildFailed(Exception):
    """The child could not be started, or has ended, or its function raised. The text contains no part of a request."""


class Child:
    """A child process that runs a module, which calls `serve`. Starts on demand. Thread-safe."""

    def __init__(self, module: str) -> None:
        self._module = module
        self.reset()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Leave the child to the parent in a forked process, where /dev/null has replaced its pipes."""
        if (process := getattr(self, "_process", None)) is not None:
            process.returncode = 0  # otherwise its destructor warns that it still runs
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._held: list[tuple[int, int]] = []

    @property
    def pid(self) -> int | None:
        """The process id of the child; `None` if it does not run."""
        return None if self._process is None else self._process.pid

    def ask(self, request: bytes) -> bytes:
        """Return the reply to a request. Blocks the thread.

        Raises:
            ChildFailed: There is no reply. The next request starts a new child if this one has ended.
        """
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                _write(process.stdin, request)
                reply = _read(process.stdout)
            except (OSError, ValueError) as error:
                self._forget(process)
                raise ChildFailed(type(error).__name__) from None
            if reply is None:
                code = self._forget(process)
                raise ChildFailed(f"exit code {code}")
        if reply[:1] != _DONE:
            raise ChildFailed(reply[1:].decode("ascii", "replace"))
        return reply[1:]

    def kill(self) -> None:
        """End the child, and a request that waits for its reply. Does not block."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the child, and wait for its end."""
        self.kill()
        with self._lock:
            if self._process is not None:
                self._forget(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        if not _is_python(sys.executable) or getattr(sys, "frozen", False):
            raise ChildFailed("sys.executable is no Python")  # such as a server that embeds Python
        options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        if sys.platform == "win32":
            options["creationflags"] = subprocess.BELOW_NORMAL_PRIORITY_CLASS
        try:
            process = subprocess.Popen([sys.executable, "-P", "-c", _RUN, self._module, *sys.path], **options)
        except OSError as error:
            raise ChildFailed(type(error).__name__) from None
        self._process = process
        self._held = [forks.hold(pipe.fileno()) for pipe in (process.stdin, process.stdout) if pipe is not None]
        return process

    def _forget(self, process: subprocess.Popen[bytes]) -> int:
        """End the child and close its pipes, and return its exit code."""
        process.kill()
        for held in self._held:
            forks.drop(held)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # the rest of a request to a child that has ended
                if pipe is not None:
                    pipe.close()
        self._process, self._held = None, []
        return process.wait()


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer requests until the pipe is closed. Runs in the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes the pipe
    getattr(os, "nice", int)(_NICE)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing that is printed gets among the replies
    while (request := _read(sys.stdin.buffer)) is not None:
        try:
            reply = _DONE + answer(request)
        except Exception as error:
            reply = _FAILED + type(error).__name__.encode("ascii", "replace")
        _write(replies, reply)


def _is_python(executable: str | None) -> bool:
    return bool(executable) and Path(executable or "").name.lower().startswith(_PYTHONS)


def _write(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return the next request or reply; `None` at the end of the pipe."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    content = pipe.read(length)
    return content if len(content) == length else None

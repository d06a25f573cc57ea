"""Processes forked from one that has imported the package: most of a start goes into imports."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Literal

# A process of its own forks them, as this one has threads. It imports from the root of the checkout, where it starts.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.support.preloaded"])
_TESTS = Path(__file__).parents[1]


class Fork:
    """A process that runs a module as `python -m` does. Tests use it as they use a `subprocess.Popen` with pipes."""

    def __init__(
        self,
        module: str,
        *words: object,
        environment: Mapping[str, str],
        stderr: Literal["pipe", "stdout", "ours"] = "pipe",
        log: Path | None = None,
        start_new_session: bool = False,
    ) -> None:
        """Start it with this environment beside the test's own. With a `log` all that it prints is in that file."""
        read, given = os.pipe()
        self.stdin: IO[str] | None = open(given, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        if log is None:
            self.stdout, said = _reader()
        else:
            said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if log is None and stderr == "pipe":
            self.stderr, complained = _reader()
        else:
            complained = os.dup(2 if stderr == "ours" else said)
        theirs = [Connection(descriptor) for descriptor in (read, said, complained)]
        arguments = (module, [str(word) for word in words], os.environ | environment, start_new_session, theirs)
        self._process = _forks.Process(target=_run, args=arguments)
        self._process.start()
        for each in theirs:
            each.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: It goes on.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a fork", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipes, and wait for the end."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # of what it was told last
                    pipe.close()
        self.wait()


def start_fresh(module: str, *words: object, **environment: str) -> subprocess.Popen[str]:
    """Start `python -m` itself, for a test of what a fork has from its parent: limits, libraries, what is imported."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(_TESTS), str(_TESTS.parent)])} | environment
    command, pipe = [sys.executable, "-m", module, *map(str, words)], subprocess.PIPE
    return subprocess.Popen(command, env=environ, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def _reader() -> tuple[IO[str], int]:
    """Return the end of a new pipe that the test reads, and the descriptor of the other."""
    read, write = os.pipe()
    return open(read, encoding="utf-8"), write


def _run(module: str, words: list[str], environment: dict[str, str], alone: bool, streams: list[Connection]) -> None:
    """Become the process."""
    if alone:
        os.setsid()
    for descriptor, stream in enumerate(streams):
        os.dup2(stream.fileno(), descriptor)
        stream.close()
    # The streams of the parent may be files, which can seek.
    sys.stdin, sys.stdout, sys.stderr = (
        open(descriptor, mode, buffering, encoding="utf-8", closefd=False)  # noqa: SIM115 (until the process ends)
        for descriptor, (mode, buffering) in enumerate([("r", -1), ("w", -1), ("w", 1)])
    )
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)

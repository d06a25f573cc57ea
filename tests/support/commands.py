"""What the tests of the command line share: an outcome, a process, and a place between memory and transport."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from redismem import Memory
from redismem.transport.base import Transport


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The document that --json prints: stdout is that one and nothing else."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on stderr of a command that could not do its work."""
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("redismem: ")
        return line


def spawn(*words: object, cwd: Path | None = None, **environment: str) -> Ran:
    """Runs `python -m redismem` as a process of its own."""
    command = [sys.executable, "-m", "redismem", *map(str, words)]
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")} | environment
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def started(*words: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs beside the test; it is killed if the test did not end it."""
    command = [sys.executable, "-m", "redismem", *map(str, words)]
    environ, pipe = os.environ | environment, subprocess.PIPE
    with subprocess.Popen(command, env=environ, text=True, stdout=pipe, stderr=pipe) as running:
        try:
            yield running
        finally:
            running.kill()


def wait_for_line(stream: IO[str] | None, word: str) -> str:
    """The first line with this word. The command must not end before it says so."""
    assert stream is not None
    said = []
    for line in stream:
        said.append(line)
        if word in line:
            return line
    raise AssertionError("".join(said))


def finished(running: subprocess.Popen[str], deadline_s: float = 60) -> Ran:
    """What it did, once it has ended by itself."""
    out, err = running.communicate(timeout=deadline_s)
    return Ran(running.returncode, out, err)


class Between:
    """Stands between a memory and its transport, and may change what passes."""

    def __init__(self, inner: Transport, memory: Memory) -> None:
        self.memory = memory
        """The same store and the test's namespace, with nothing in between."""
        self._inner = inner

    async def run(self, commands: Any, timeout_s: float, script: Any = None) -> Any:
        return await self.passed(commands, await self._inner.run(commands, timeout_s, script))

    async def passed(self, commands: Any, answers: Any) -> Any:
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

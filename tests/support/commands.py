"""Commands as processes, their outcomes, and a layer between memory and transport."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from redismem import Memory
from redismem.transport.base import Transport
from support.forks import Fork


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The document that --json prints, which must be all of stdout."""
        return json.loads(self.out)

    @property
    def error_line(self) -> str:
        """The one line on stderr of a command that failed."""
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("redismem: ")
        return line


def run_command(*words: object, cwd: Path | None = None, **environment: str) -> Outcome:
    """Run `python -m redismem` as a process."""
    command = [sys.executable, "-m", "redismem", *map(str, words)]
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")} | environment
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def start_command(*words: object, **environment: str) -> Iterator[Fork]:
    """Start a command beside the test; it is killed at the end."""
    with Fork("redismem", *words, environment=environment) as running:
        try:
            yield running
        finally:
            running.kill()


def wait_for_line(stream: IO[str] | None, word: str) -> str:
    """Return the first line with this word. Raises as `read_until` does."""
    return read_until(stream, word)[-1]


def read_until(stream: IO[str] | None, word: str) -> list[str]:
    """Return all lines up to the first one with this word.

    Raises:
        AssertionError: The stream ends without it.
    """
    assert stream is not None
    said = []
    for line in stream:
        said.append(line)
        if word in line:
            return said
    raise AssertionError("".join(said))


def wait_for_exit(running: Fork | subprocess.Popen[str], said: str = "", deadline_s: float = 300) -> Outcome:
    """Say the last words to a process, wait for its end, and return its outcome with all that was not read before."""
    rest = {"stdout": "", "stderr": ""}

    def read(name: str, stream: IO[str]) -> None:
        with stream:
            rest[name] = stream.read()

    given = ((name, getattr(running, name)) for name in rest)
    readers = [threading.Thread(target=read, args=(name, stream), daemon=True) for name, stream in given if stream]
    for reader in readers:
        reader.start()
    if running.stdin is not None and not running.stdin.closed:
        with contextlib.suppress(BrokenPipeError), running.stdin:
            running.stdin.write(said)
    code = running.wait(deadline_s)
    for reader in readers:
        reader.join(deadline_s)
        assert not reader.is_alive(), "a child of the process goes on"
    return Outcome(code, rest["stdout"], rest["stderr"])


class TransportLayer:
    """A layer between a memory and its transport, which may change calls and replies."""

    def __init__(self, inner: Transport, memory: Memory) -> None:
        self.memory = memory
        """A memory on the same store and namespace, without this layer."""
        self._inner = inner

    async def run(self, commands: Any, timeout_s: float, script: Any = None, subject: Any = None) -> Any:
        return await self.change_replies(commands, await self._inner.run(commands, timeout_s, script, subject))

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

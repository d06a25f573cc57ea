"""A process that works on a project as it is told, a line each, and says what came of it.

    python -m support.project_racer redis://…

A line is `[namespace, store, verb, arguments, named arguments]`; the answer is `["ok", id]` or the name of the error's
class.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from redismem import RedismemError, Settings
from redismem.blocking import memory as blocking


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(url: str) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=20)
    with contextlib.ExitStack() as stack:
        projects: dict[str, Any] = {}
        say("ready")
        for line in sys.stdin:
            namespace, store, verb, arguments, named = json.loads(line)
            if namespace not in projects:
                memory = blocking.Memory.connect(url, namespace=namespace, settings=settings)
                projects[namespace] = stack.enter_context(memory).project("apollo")
            apollo = projects[namespace]
            try:
                target = apollo if store == "project" else getattr(apollo, store)
                made = getattr(target, verb)(*arguments, **named)
                say(["ok", getattr(made, "id", None)])
            except RedismemError as error:
                say([type(error).__name__, None])


class Racers:
    """So many processes, each of which works at the same time as the others."""

    def __init__(self, running: Sequence[subprocess.Popen[str]], namespace: str = "") -> None:
        self._running = running
        self._namespace = namespace

    def within(self, namespace: str) -> Racers:
        """The processes, told of this namespace."""
        return Racers(self._running, namespace)

    def tell(self, number: int, store: str, verb: str, *arguments: Any, **named: Any) -> None:
        stdin = self._running[number % len(self._running)].stdin
        assert stdin is not None
        stdin.write(json.dumps([self._namespace, store, verb, arguments, named]) + "\n")
        stdin.flush()

    def said(self, number: int) -> Any:
        stdout = self._running[number % len(self._running)].stdout
        assert stdout is not None
        return json.loads(stdout.readline())

    def race(self, *orders: Sequence[Any], **named: Any) -> list[Any]:
        """Gives each process an order, and then hears from each what came of it."""
        for number, order in enumerate(orders):
            self.tell(number, *order, **named)
        return [self.said(number) for number in range(len(orders))]


@contextlib.contextmanager
def racers(url: str, count: int) -> Iterator[Racers]:
    """Processes that are ready. They are ended with the test."""
    folder = str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([folder, str(Path(folder).parent)])}
    command = [sys.executable, "-m", "support.project_racer", url]
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        running = []
        for _ in range(count):
            process = stack.enter_context(
                subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe)
            )
            stack.callback(process.kill)
            running.append(process)
        found = Racers(running)
        assert [found.said(number) for number in range(count)] == ["ready"] * count
        yield found


if __name__ == "__main__":
    main(sys.argv[1])

"""`redismem serve` as a process forked from one that has imported it: most of its start goes into imports."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from redismem.cli import main
from support.waiting import START_S, wait_until

# A process of its own forks them, as this one has threads. It imports from the root of the checkout, where it starts.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["redismem.cli.app", "redismem.cli.serve", "redismem.web.server", "redismem.workers", "tests.support.documented"]
)


def _serve(words: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.exit(main(["serve", *words]))


@contextlib.contextmanager
def run_service(*words: object, **environment: str) -> Iterator[str]:
    """Run `redismem serve` and yield its address; stop it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        given = [str(word) for word in (words if "--port" in words else (*words, "--port", 0))]
        running = _forks.Process(target=_serve, args=(given, environment, str(log)))
        running.start()
        try:
            wait_until(lambda: "listens on" in log.read_text() or not running.is_alive(), "a service", START_S)
            addresses: list[str] = re.findall(r"listens on.*?(http://\S+)", log.read_text())
            assert addresses, log.read_text()
            yield addresses[0]
            assert running.pid
            os.kill(running.pid, signal.SIGTERM)
            running.join(START_S)
            assert running.exitcode == 0, log.read_text()
        finally:
            running.kill()
            running.join()
            running.close()

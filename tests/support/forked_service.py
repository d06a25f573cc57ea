"""`redismem serve` as a forked process."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.forks import Fork
from support.waiting import START_S, wait_until


@contextlib.contextmanager
def run_service(*words: object, **environment: str) -> Iterator[str]:
    """Run `redismem serve` and yield its address; stop it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        given = words if "--port" in words else (*words, "--port", 0)
        with Fork("redismem", "serve", *given, environment=environment, log=log) as running:
            try:
                wait_until(lambda: "listens on" in log.read_text() or running.poll() is not None, "a service", START_S)
                addresses: list[str] = re.findall(r"listens on.*?(http://\S+)", log.read_text())
                assert addresses, log.read_text()
                yield addresses[0]
                running.terminate()
                assert running.wait(START_S) == 0, log.read_text()
            finally:
                running.kill()

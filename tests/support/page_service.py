"""`redismem serve` as a process, for browsers."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator

from support.commands import finished, started, wait_for_line

# A worker looks often, so that nobody waits for a summary.
QUICK = {"REDISMEM_TICK_S": "0.1", "REDISMEM_DEADLINE_S": "60", "REDISMEM_REPLY_TIMEOUT_S": "20"}


@contextlib.contextmanager
def serving(*words: object, **environment: str) -> Iterator[str]:
    """Its address. It is told to stop at the end."""
    port = () if "--port" in words else ("--port", 0)
    with started("serve", *port, *words, **QUICK | environment) as running:
        found = re.search(r"http://\S+", wait_for_line(running.stdout, "listens on"))
        assert found
        yield found[0]
        running.send_signal(signal.SIGTERM)
        ran = finished(running)
        assert ran.code == 0, ran.err

"""Real processes append, rewrite, clear, summarise and read one session at once.

It runs for a second, or for `RACE_SECONDS`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from support.edited import is_sound
from support.pods import read_ledger
from support.rewrite_race import SESSION, SETTINGS, WHOLE_COUNT, find_fault
from support.waiting import START_S

from redismem import Memory, Message

SECONDS = float(os.environ.get("RACE_SECONDS", "1"))
ROLES = ["writer", "writer", "reader", "worker", "rewriter", "clearer"]
TESTS = Path(__file__).parents[1]


def run_all(url: str, namespace: str, folder: Path) -> dict[str, list[list[Any]]]:
    """Run all processes for a while, and until each has noted something twice. Returns the ledgers by role."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    started = []
    for number, role in enumerate(ROLES):
        command = [sys.executable, "-m", "support.rewrite_race", role, url, namespace]
        process = subprocess.Popen(
            [*command, str(folder / f"{number}")], env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE
        )
        started.append(process)
    try:
        ledgers = [folder / f"{number}" for number, role in enumerate(ROLES) if role != "worker"]
        begun_s = monotonic()
        while monotonic() < begun_s + SECONDS or any(len(read_ledger(path)) < 2 for path in ledgers):
            assert monotonic() < begun_s + SECONDS + START_S, "a process notes nothing"
            with pytest.raises(subprocess.TimeoutExpired):
                started[0].wait(0.1)
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(START_S) for process in started] == [0] * len(ROLES)
    finally:
        for process in started:
            process.kill()
            process.communicate()
    found: dict[str, list[list[Any]]] = {role: [] for role in ROLES}
    for number, role in enumerate(ROLES):
        found[role] += read_ledger(folder / f"{number}")
    return found


def check_acknowledged(messages: list[Message], writes: list[list[Any]]) -> None:
    """Assert that each acknowledged pair of this life is there once, unless a later rewrite has removed it."""
    texts = {message.seq: str(message.content) for message in messages}
    here = [write for write in writes if messages and write[1] == messages[0].epoch]
    for kind, _, first_seq, last_seq, name, *_ in here:
        removed = any(other[0] == "rewrite" and other[5] <= first_seq and other[2] > last_seq for other in here)
        assert (texts.get(first_seq) == f"{name} a") != removed, (kind, first_seq, name, removed)
    assert max(Counter(texts.values()).values(), default=1) == 1, "no text is there twice"


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 600)
async def test_no_acknowledged_message_is_lost_and_no_reader_sees_half(
    redis_server: Any, namespace: str, tmp_path: Path
) -> None:
    found = run_all(redis_server.url, namespace, tmp_path)
    assert [line for line in found["reader"] if line[0] == "fault"] == []
    async with Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS) as memory:
        messages = await memory.session(SESSION).tail(WHOLE_COUNT)
        assert find_fault(messages, True) == ""
        check_acknowledged(messages, [*found["writer"], *found["rewriter"]])
        assert await is_sound(memory)
    assert all(len(found[role]) > 1 for role in ("writer", "rewriter", "reader", "clearer"))
    sys.stdout.write(f"{ ({role: len(lines) for role, lines in found.items()}) }\n")

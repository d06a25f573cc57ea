"""`redismem worker` runs with a lower priority, unless `--nice 0` keeps it."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.commands import start_command, wait_for_line


def test_a_worker_runs_with_a_lower_priority(redis_options: Any, used_options: Any) -> None:
    with start_command("worker", *redis_options) as running:
        wait_for_line(running.stderr, "started on")
        assert os.getpriority(os.PRIO_PROCESS, running.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)


def test_the_option_chooses_the_priority_or_keeps_it(
    command: Any, used_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    increments: list[int] = []
    monkeypatch.setattr(os, "nice", increments.append)
    for words in (("--nice", "0"), (), ("--nice", "3")):
        assert command("worker", "--once", *words, *used_options).code == 0
    assert increments == [0, 10, 3]
    assert command("worker", "--once", "--nice", "20", *used_options).code == 2

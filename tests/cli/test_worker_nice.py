"""`redismem worker` runs with a lower priority, unless `--nice 0` keeps it."""

from __future__ import annotations

import os
from typing import Any

import pytest


def test_the_option_chooses_the_priority_or_keeps_it(
    command: Any, used_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    increments: list[int] = []
    monkeypatch.setattr(os, "nice", increments.append)
    for words in (("--nice", "0"), (), ("--nice", "3")):
        assert command("worker", "--once", *words, *used_options).code == 0
    assert increments == [0, 10, 3]
    assert command("worker", "--once", "--nice", "20", *used_options).code == 2

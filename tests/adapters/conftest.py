"""Adapters open a memory by a URL too, with the settings of the environment."""

from __future__ import annotations

import pytest
from support.stores import PATIENT


@pytest.fixture(autouse=True)
def long_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the memory wait for a Redis on a busy machine."""
    for name, seconds in PATIENT.items():
        monkeypatch.setenv(name, seconds)

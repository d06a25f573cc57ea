"""Settings without the long deadlines of the other tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_environment(default_deadlines: None) -> None:
    """Let only variables that a test sets have an effect."""

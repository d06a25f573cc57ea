"""Fixtures of the tests of the scripts."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_scripts import Scripts


@pytest.fixture
def lua(raw: Any, namespace: str) -> Scripts:
    return Scripts(raw, namespace)

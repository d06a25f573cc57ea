"""Fixtures for project tests: a project on each store, and a clock that tests set."""

from __future__ import annotations

import pytest
from support.clock import ProjectClock

from redismem import Memory
from redismem.project.project import Project


@pytest.fixture
def clock() -> ProjectClock:
    return ProjectClock()


@pytest.fixture
def apollo(clock: ProjectClock, memory: Memory) -> Project:
    """The project that most tests use."""
    assert memory.store.clock is clock
    return memory.project("apollo")

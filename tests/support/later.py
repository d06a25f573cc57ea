"""Packages that take long to import, for the process that needs them alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A package that is imported when it is first asked for something.

    Every process collects all tests, and runs some of them.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, what: str) -> Any:
        if what.startswith("_"):  # pytest asks every name of a module for attributes of its own
            raise AttributeError(what)
        return getattr(import_module(self._name), what)

"""The extras: optional packages that a part of redismem needs, and the check that they are here and new enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires, version

_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*?(?:>=([\d.]+))?[^;>]*;.*extra == ['\"]([\w-]+)['\"]")


class MissingExtra(ImportError):
    """A package that an extra brings is not installed, or too old."""


def require_extra(extra: str, needed_by: str) -> None:
    """Check the packages of an extra against pyproject.toml, as far as the metadata of redismem is installed.

    Raises:
        MissingExtra: A package is not installed, or older than the oldest that works.
    """
    for name, floor in _requirements(extra):
        try:
            installed = version(name)
        except PackageNotFoundError:
            raise MissingExtra(f"{needed_by} needs the extra {extra}: {_remedy(extra)}") from None
        if _numbers(installed) < _numbers(floor):
            text = f"{needed_by} needs {name} {floor} or newer, and {installed} is installed: {_remedy(extra)}"
            raise MissingExtra(text)


@contextmanager
def from_extra(extra: str, module: str) -> Iterator[None]:
    """Import in the block what an extra brings. Raises MissingExtra."""
    require_extra(extra, module)
    yield


def _requirements(extra: str) -> list[tuple[str, str]]:
    """Return name and oldest version of each package that an extra brings on this platform."""
    try:
        matches = map(_REQUIREMENT.match, requires("redismem") or ())
    except PackageNotFoundError:  # a copy of the package that was not installed
        return []
    # A package for some platforms alone makes things faster; nothing needs it.
    needed = (match for match in matches if match and match[3] == extra and "platform" not in match[0])
    return [(match[1], match[2] or "0") for match in needed]


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a release, without zeros at the end: 2.0 equals 2."""
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", text, maxsplit=1)[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _remedy(extra: str) -> str:
    return f"pip install 'redismem[{extra}]'"

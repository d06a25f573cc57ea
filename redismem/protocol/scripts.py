"""The Lua scripts, as they lie in `lua/`: the source and the SHA-1 by which Redis knows it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Script:
    """One operation. `sha` is what EVALSHA takes."""

    name: str
    source: bytes
    sha: bytes


@cache
def folder() -> Traversable:
    """Where the scripts lie: inside the package when installed from a wheel, beside it in a checkout.

    Raises FileNotFoundError where they are in neither place (a broken package).
    """
    packaged = resources.files("redismem") / "lua"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / "lua"
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError("redismem's lua/ folder is neither in the package nor beside it: install redismem again")


@cache
def load(name: str) -> Script:
    """The script `lua/<name>.lua`."""
    source = (folder() / f"{name}.lua").read_bytes()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


def names() -> list[str]:
    """All scripts there are, sorted."""
    return sorted(entry.name.removesuffix(".lua") for entry in folder().iterdir() if entry.name.endswith(".lua"))

"""The Lua scripts, as they lie in `lua/`: the source and the SHA-1 by which Redis knows it.

`lua/<room>/<name>.lua` is a script; `lua/include/` holds parts that several have, or that have a name of their own: a
line `--- @include name` is replaced by `lua/include/name.lua` without the comment at its head. A part is plain
statements over the script's locals, as a call would cost the server time; its head says which it reads and sets.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

_INCLUDE = re.compile(r"^( *)--- @include +(.*?) *\n", re.MULTILINE)
_CALLED = re.compile(r"redis\.call\('([A-Z]+)'")
_HEAD = re.compile(r"(?:--.*\n)*?-- SETS.*\n")


@dataclass(frozen=True, slots=True)
class Script:
    """One operation. `source` is the text with its parts; `sha` is what EVALSHA takes."""

    name: str
    source: bytes
    sha: bytes


@cache
def folder() -> Traversable:
    """Where the scripts lie: inside the package when installed from a wheel, beside it in a checkout.

    Raises FileNotFoundError if they are in neither place (a broken package).
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
    """The script of this name. Raises FileNotFoundError for a name that is no script's, or a part that is missing."""
    if name not in _files():
        raise FileNotFoundError(f"no folder of lua/ has a script {name}.lua")
    source = included(_files()[name].read_text("utf-8"), folder() / "include").encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


def names() -> list[str]:
    """All scripts there are, sorted."""
    return sorted(_files())


def commands_at(sha: str, line: int) -> list[str]:
    """The commands that this line of the script calls, in small letters; none for a script or line that is not ours."""
    for name in names():
        script = load(name)
        lines = script.source.decode().splitlines() if script.sha.decode() == sha else []
        if 0 < line <= len(lines):
            return [command.lower() for command in _CALLED.findall(lines[line - 1])]
    return []


@cache
def _files() -> dict[str, Traversable]:
    rooms = [room for room in folder().iterdir() if room.is_dir() and room.name != "include"]
    entries = [entry for room in rooms for entry in room.iterdir() if entry.name.endswith(".lua")]
    return {entry.name.removesuffix(".lua"): entry for entry in entries}


def included(text: str, parts: Traversable) -> str:
    """The text with its parts put in, indented as the lines that ask for them.

    Raises FileNotFoundError for a part that is missing, RecursionError for one that includes itself.
    """

    def part(match: re.Match[str]) -> str:
        indent, name = match.groups()
        file = parts / f"{name}.lua"
        if not re.fullmatch(r"\w+", name) or not file.is_file():
            raise FileNotFoundError(f"a script includes {name!r}, and lua/include/ has no such part")
        body = _HEAD.sub("", file.read_text("utf-8"), count=1)
        return re.sub(r"^(?=.)", indent, included(body, parts), flags=re.MULTILINE)

    return _INCLUDE.sub(part, text)

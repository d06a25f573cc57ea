"""The Lua scripts of `lua/`: their source with includes resolved, and the SHA-1 for EVALSHA.

`lua/<folder>/<name>.lua` is a script; `lua/include/` contains shared parts. A line `--- @include name` is replaced by
`lua/include/name.lua` without its head comment. A part consists of statements over the script's locals, because a
function call would cost server time. The head of a part lists the locals that it reads and sets.

The head of a script declares its operation: it lists the names of the keys and arguments, in order, one a line. Callers
give keys and arguments by these names, see `call.script_call`.
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
_DECLARED = re.compile(r"^-- KEYS\n((?:--   .*\n)*)-- ARGV\n((?:--   .*\n)*)", re.MULTILINE)
_NAME = re.compile(r"^--   (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One operation: `source` is the text with its includes, `sha` the argument of EVALSHA."""

    name: str
    source: bytes
    sha: bytes
    keys: tuple[str, ...] = ()
    """The names of the keys, in order, as the head of the script lists them."""
    arguments: tuple[str, ...] = ()
    """The names of the arguments, in order. A tail of more arguments has no names."""

    @property
    def sending_name(self) -> str | None:
        """The name of the argument that contains the sending of a call, which each retry renews; None without one."""
        return next((name for name in ("token", "sending") if name in self.arguments), None)


@cache
def folder() -> Traversable:
    """Return the folder of the scripts. It is inside the package in a wheel, and beside the package in a checkout.

    Raises:
        FileNotFoundError: neither folder exists, so the installation is broken.
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
    """Load a script by name.

    Raises:
        FileNotFoundError: there is no script of this name, or a part that it includes is missing.
    """
    if name not in _files():
        raise FileNotFoundError(f"no folder of lua/ has a script {name}.lua")
    text = resolve_includes(_files()[name].read_text("utf-8"), folder() / "include")
    source, declared = text.encode(), _DECLARED.search(text)
    assert declared is not None, f"the head of {name}.lua lists no KEYS and ARGV"
    keys, arguments = (tuple(_NAME.findall(part)) for part in declared.groups())
    assert len({*keys, *arguments}) == len(keys + arguments), f"{name}.lua lists a name twice"
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
    return Script(name, source, sha, keys, arguments)


@cache
def values_in(name: str, argument: str) -> tuple[str, ...]:
    """Return the names of the values in an argument that contains several: the head lists them before a colon."""
    found = re.search(rf"^--   {argument} +([\w ]+):", load(name).source.decode(), re.MULTILINE)
    assert found is not None, f"the head of {name}.lua lists no values in {argument}"
    return tuple(found[1].split())


def names() -> list[str]:
    """Return the names of all scripts, sorted."""
    return sorted(_files())


def commands_at(sha: str, line: int) -> list[str]:
    """Return the commands, in lower case, that a line of a script calls. An unknown script or line gives none."""
    for name in names():
        script = load(name)
        lines = script.source.decode().splitlines() if script.sha.decode() == sha else []
        if 0 < line <= len(lines):
            return [command.lower() for command in _CALLED.findall(lines[line - 1])]
    return []


@cache
def _files() -> dict[str, Traversable]:
    folders = [entry for entry in folder().iterdir() if entry.is_dir() and entry.name != "include"]
    files = [file for parent in folders for file in parent.iterdir() if file.name.endswith(".lua")]
    return {file.name.removesuffix(".lua"): file for file in files}


def resolve_includes(text: str, parts: Traversable) -> str:
    """Replace each include line by its part, with the indent of the line.

    Raises:
        FileNotFoundError: a part is missing.
        RecursionError: a part includes itself.
    """

    def load_part(match: re.Match[str]) -> str:
        indent, name = match.groups()
        file = parts / f"{name}.lua"
        if not re.fullmatch(r"\w+", name) or not file.is_file():
            raise FileNotFoundError(f"a script includes {name!r}, but lua/include/ has no such part")
        body = _HEAD.sub("", file.read_text("utf-8"), count=1)
        return re.sub(r"^(?=.)", indent, resolve_includes(body, parts), flags=re.MULTILINE)

    return _INCLUDE.sub(load_part, text)

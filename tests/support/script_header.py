"""The names that stand in the header of a script."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"--   (\w+)(?: .*)?")


@dataclass(frozen=True)
class Header:
    purpose: str
    keys: list[str]
    arguments: list[str]
    reads: frozenset[str]
    """The fields of the state that it reads; `all` for every one."""
    writes: frozenset[str]
    reply: str
    error: str


def header(source: str) -> Header:
    """Reads the head of a script. Raises AssertionError if it is not of the form that all scripts share."""
    lines: list[str] = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    sections = [number for number, line in enumerate(lines) if re.match(r"-- (KEYS|ARGV|FIELDS|REPLY|ERROR)\b", line)]
    assert [lines[number].split()[1] for number in sections] == ["KEYS", "ARGV", "FIELDS", "REPLY", "ERROR"]
    keys, argv, fields, reply, error = sections
    return Header(
        purpose=" ".join(line.removeprefix("-- ") for line in lines[:keys]),
        keys=[_name(line) for line in lines[keys + 1 : argv]],
        arguments=[_name(line) for line in lines[argv + 1 : fields]],
        reads=_fields("reads", lines[fields:reply]),
        writes=_fields("writes", lines[fields:reply]),
        reply=" ".join(line.removeprefix("-- ") for line in lines[reply:error]).removeprefix("REPLY").strip(),
        error=" ".join(line.removeprefix("-- ") for line in lines[error:]).removeprefix("ERROR").strip(),
    )


def _fields(word: str, lines: list[str]) -> frozenset[str]:
    """What stands in the section FIELDS behind this word, each of which has a line of its own."""
    found = [re.findall(rf"\b{word} (.*)", line) for line in lines]
    return frozenset(name for names in found for line in names for name in line.split())


def _name(line: str) -> str:
    match = _LINE.fullmatch(line)
    assert match, f"not a name and what it is: {line!r}"
    return match[1]

"""A script's header, and what its code really does: fields, indexes and refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from redismem.protocol import layout

# Expressions without a quoted field, and the fields they stand for.
_CALLERS = {
    layout.PARAM,
    layout.WAITING,
    layout.LAST_INTENT,
    layout.LAST_RESULT,
    layout.PLAN,
    layout.TITLE,
    layout.INSTRUCTION,
}
_MEANT: dict[str, set[bytes]] = {
    "unpack(changes)": _CALLERS,
    "unpack(ARGV, first_drop)": _CALLERS,
    "unpack(fields)": {layout.SUMMARIES_COUNT, layout.SUMMARY, layout.PINNED, layout.REMOVED, layout.PRUNED}
    | {layout.WITH_ORIGINALS},
    "unpack(ARGV, first_dropped)": {
        *(layout.SUMMARY, layout.PINNED, layout.SKETCH, layout.COMMITTED, layout.WITH_ORIGINALS, layout.TITLE)
    },
    "place": {layout.PINNED},
    "summary_field": {layout.SUMMARY},
    "unpack(folded)": {layout.SUMMARY},
    "field": {layout.SUMMARY},
    "pinned_field": {layout.PINNED},
    "'ids_' .. oldest": set(layout.OLDER_IDS),
    "'ids:' .. string.byte(token, 8)": {layout.LEFT_IDS},
    "older_ids": {layout.LEFT_IDS},
}
_INDEXES_MEANT = {
    ("release", "queue"): {"overdue", "dead"},
    ("sweep", "queue"): {"overdue", "leased", "dead"},
}
_NO_STATE = (["providers"], ["ticks"], ["processes"], ["originals"])
"""Hashes other than the state, and a sorted set that is no index of sessions."""


class Text(NamedTuple):
    reads: frozenset[str]
    writes: frozenset[str]
    fills: frozenset[str]
    """The indexes that it adds sessions to."""
    empties: frozenset[str]
    words: frozenset[str]
    queued: frozenset[str]
    """The values that it sets in the field `queued`."""


def text(name: str, source: str) -> Text:
    """Read the code of a script.

    Raises:
        AssertionError: A field or an index is unclear.
    """
    code = re.sub(r"--[^\n]*", "", source)
    reads: set[str] = set()
    writes: set[str] = set()
    fills: set[str] = set()
    empties: set[str] = set()
    queued: set[str] = set()
    for command, *rest in _calls(code):
        match command.strip("'"):
            case "HGET" | "HMGET" | "HEXISTS":
                reads |= _fields(rest[1:])
            case "HGETALL":
                reads.add("all")
            case "HKEYS":
                reads |= set(re.findall(r"'\^(\w+:)'", code))
            case "HSET":
                writes |= _fields(argument for argument in rest[1::2])
                values = [argument for argument in rest[1:] if not argument.startswith("unpack(")]
                queued |= _queued(dict(zip(values[::2], values[1::2], strict=False)), code)
            case "HDEL":
                writes |= _fields(rest[1:])
            case "ZADD":
                fills |= _indexes(name, code, rest[0])
            case "ZREM":
                empties |= _indexes(name, code, rest[0])
    for field, value in re.findall(r"\bchange\(('\w+'(?: \.\. \w+)?), (.*)\)", code):
        writes |= _fields([field])
        queued |= _queued({field: value}, code)
    words = frozenset(re.findall(r"error_reply\('([A-Z]+)", code))
    return Text(frozenset(reads), frozenset(writes), frozenset(fills), frozenset(empties), words, frozenset(queued))


def _calls(code: str) -> Iterator[list[str]]:
    """Yield the arguments of every redis.call about a session, also of nested calls."""
    for call in re.finditer(r"redis\.p?call\(", code):
        depth, parts = 0, [""]
        for letter in code[call.end() :]:
            if letter in ")}" and depth == 0:
                break
            depth += (letter in "({") - (letter in ")}")
            if letter == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += letter
        words = [part.strip() for part in parts]
        if words[1:2] not in _NO_STATE:
            yield words


def _fields(arguments: Iterator[str] | list[str]) -> set[str]:
    found: set[str] = set()
    for argument in arguments:
        quoted = re.findall(r"'(\w+)'", argument)
        if argument in _MEANT:
            found |= {field.decode() for field in _MEANT[argument]}
        else:
            assert quoted, f"which field is {argument}?"
            found |= set(quoted)
    return found


def _queued(pairs: dict[str, str], code: str) -> set[str]:
    """Return the values that `queued` is set to; a variable stands for all its texts."""
    value = pairs.get("'queued'")
    if value is None:
        return set()
    if value == "name":
        return set(re.findall(r"= '\w+', \w+, '(\w+)'", code))
    return {value.strip("'")}


def _indexes(script: str, code: str, name: str) -> set[str]:
    if name in (*layout.INDEXES, "owners", "turns"):
        return {name}
    looped = re.findall(rf"for _, {name} in ipairs\(\{{([\w, ]+)\}}\)", code)
    found = {index for names in looped for index in names.split(", ")} | _INDEXES_MEANT.get((script, name), set())
    assert found, f"which index is {name} of {script}.lua?"
    return found


_LINE = re.compile(r"--   (\w+)(?: .*)?")


@dataclass(frozen=True)
class Header:
    purpose: str
    keys: list[str]
    arguments: list[str]
    reads: frozenset[str]
    """The fields of the state that it reads; `all` means every field."""
    writes: frozenset[str]
    reply: str
    error: str


@cache
def header(source: str) -> Header:
    """Read the header of a script.

    Raises:
        AssertionError: The header does not have the form of all headers.
    """
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
        reads=_fields_after("reads", lines[fields:reply]),
        writes=_fields_after("writes", lines[fields:reply]),
        reply=" ".join(line.removeprefix("-- ") for line in lines[reply:error]).removeprefix("REPLY").strip(),
        error=" ".join(line.removeprefix("-- ") for line in lines[error:]).removeprefix("ERROR").strip(),
    )


def _fields_after(word: str, lines: list[str]) -> frozenset[str]:
    """Return the names after this word in the section FIELDS."""
    found = [re.findall(rf"\b{word} (.*)", line) for line in lines]
    return frozenset(name for names in found for line in names for name in line.split())


def _name(line: str) -> str:
    match = _LINE.fullmatch(line)
    assert match, f"not a name and what it is: {line!r}"
    return match[1]

"""The texts of the scripts: heads, words, keys, hashes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from support.script_text import header

from redismem.protocol import scripts

LUA = Path(__file__).parents[2] / "lua"
NAMES = scripts.names()
SOURCES = {name: scripts.load(name).source.decode() for name in NAMES}
CODE = {name: re.sub(r"--[^\n]*", "", source) for name, source in SOURCES.items()}
_UNPACK = re.compile(r"^local ([\w,\s]+?) = unpack\((KEYS|ARGV)(?:, 1, (\d+))?\)$", re.MULTILINE)


def unpacked_names(name: str, table: str) -> list[str]:
    """Return the names that a script gives to its keys or arguments."""
    for names, source, last in _UNPACK.findall(SOURCES[name]):
        if source == table:
            found = re.split(r",\s*", names)
            assert last in ("", str(len(found)))
            return found
    single = re.search(rf"^local (\w+) = (?:tonumber\()?{table}\[1\]\)?$", SOURCES[name], re.MULTILINE)
    return [single[1]] if single else []


@pytest.mark.parametrize("name", NAMES)
def test_a_header_has_the_names_of_unpack_in_order(name: str) -> None:
    head = header(SOURCES[name])
    assert len(head.purpose) > 20
    assert head.reply
    assert head.keys == unpacked_names(name, "KEYS") != []
    # A single argument may become a number at once.
    assert head.arguments in (
        unpacked_names(name, "ARGV"),
        [f"{argument}_ms" for argument in unpacked_names(name, "ARGV")],
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_header_lists_exactly_the_words_of_refusals(name: str) -> None:
    used = set(re.findall(r"error_reply\('([A-Z]+)", CODE[name]))
    assert used == set(re.findall(r"\b[A-Z]{2,}\b", header(SOURCES[name]).error))


@pytest.mark.parametrize("name", NAMES)
def test_a_script_sets_no_global(name: str) -> None:
    """Every assigned name is a local: a global makes every later script of the embedded store fail."""
    known = set(re.findall(r"local function (\w+)", CODE[name]))
    for names in re.findall(r"\blocal ([\w,\s]+?)(?:=|\n(?!\s*\w+,))", CODE[name]):
        known |= set(re.split(r"[,\s]+", names.strip()))
    for names in re.findall(r"\bfor ([\w, ]+?) (?:=|in)\b", CODE[name]) + re.findall(
        r"function ?\w*\(([\w, ]*)\)", CODE[name]
    ):
        known |= set(re.split(r"[,\s]+", names.strip()))
    assigned: set[str] = set()
    for line in CODE[name].splitlines():
        for statement in re.split(r"\b(?:then|do|else)\b|;", line):
            match = re.match(r"\s*([a-z_]\w*(?:\s*,\s*[a-z_]\w*)*)\s*=(?!=)", statement)
            if match:
                assigned |= set(re.split(r"[,\s]+", match[1]))
    assert assigned <= known
    assert not re.search(r"^\s*function \w", CODE[name], re.MULTILINE)


LOOKED_AT = "redis.pcall('EXISTS', prefix .. other) == 0"
"""The only access to another session: it writes nothing, and a refusal by the server counts as no."""


@pytest.mark.parametrize("name", NAMES)
def test_a_script_accesses_only_keys_from_its_keys(name: str) -> None:
    """The second argument of redis.call is a local or one of KEYS; never a string or a concatenation."""
    assert CODE[name].count(LOOKED_AT) == (name in ("append", "begin_turn"))
    for call in re.findall(r"redis\.p?call\(([^)]*)", CODE[name].replace(LOOKED_AT, "")):
        command, _, rest = call.partition(",")
        if command.strip() == "'TIME'":
            continue
        first = rest.split(",")[0].strip()
        assert re.fullmatch(r"[a-z_]+|KEYS\[[a-z]+\]", first), call
    assert re.findall(r"local (?!function)[\w, \n]*=[^\n]*\.\.[^\n]*KEYS|KEYS[^\n]*\.\.", CODE[name]) == []
    assert "rm:" not in CODE[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_uses_only_functions_of_both_stores(name: str) -> None:
    foreign = (
        r"\b(cjson|cmsgpack|struct|bit|sha1hex|loadstring|require|print|(?<!redis\.)pcall|error|replicate_commands"
        r"|REDIS_VERSION)\b"
    )
    assert re.findall(foreign, CODE[name]) == []
    assert SOURCES[name].isascii() or "·" in SOURCES[name]
    assert not SOURCES[name].startswith("#!")


@pytest.mark.parametrize("name", NAMES)
def test_the_sha_of_a_script_is_the_hash_of_its_source(name: str) -> None:
    script = scripts.load(name)
    assert script.sha.decode() == hashlib.sha1(script.source).hexdigest()
    assert scripts.load(name) is script

"""The parts that scripts include: their heads, and their insertion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redismem.protocol import scripts

LUA = Path(__file__).parents[2] / "lua"
PARTS = sorted((LUA / "include").glob("*.lua"))
_LANGUAGE = "and break do else elseif end false for function if in local nil not or repeat return then true until while"
_GIVEN = "redis string table math tonumber ipairs pairs unpack KEYS ARGV"


def declared_locals(code: str) -> set[str]:
    """Return the locals that a piece of Lua declares, at any depth."""
    found = re.findall(r"\blocal (?:function )?([\w,\s]+)", code)
    found += re.findall(r"\bfor ([\w, ]+?) (?:=|in\b)", code) + re.findall(r"\bfunction ?\w*\(([\w, ]*)\)", code)
    return {name for names in found for name in re.findall(r"\w+", names)}


def reads_and_sets(code: str) -> tuple[set[str], set[str]]:
    """Return the outer locals that a piece of Lua reads, and the locals that it changes or declares for later code."""
    code = re.sub(r"'[^']*'", "''", re.sub(r"--[^\n]*", "", code))
    target = re.compile(r"^ *([a-z_]\w*(?:, [a-z_]\w*)*) =(?!=)", re.MULTILINE)
    changed = {name for names in target.findall(code) for name in names.split(", ")}
    left = set(re.findall(r"\w+", " ".join(re.findall(r"^local (?!function)([\w, ]+)", code, re.MULTILINE))))
    used = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", target.sub("", code))) - set(f"{_LANGUAGE} {_GIVEN} _".split())
    return used - declared_locals(code), left | (changed - declared_locals(code))


def head(part: Path) -> tuple[set[str], set[str]]:
    (reads,) = re.findall(r"^-- READS(.*)$", part.read_text(), re.MULTILINE)
    (sets,) = re.findall(r"^-- SETS(.*)$", part.read_text(), re.MULTILINE)
    return set(reads.split()), set(sets.split())


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.stem)
def test_a_part_says_which_locals_it_reads_and_sets(part: Path) -> None:
    assert part.read_text().startswith("-- ")
    body = re.sub(r"\A(?:--.*\n)*?-- SETS.*\n", "", part.read_text())
    assert head(part) == reads_and_sets(scripts.resolve_includes(body, LUA / "include"))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.stem)
def test_every_part_is_included(part: Path) -> None:
    asking = f"--- @include {part.stem}\n"
    assert any(asking in script.read_text() for script in LUA.rglob("*.lua"))


@pytest.mark.parametrize("name", scripts.names())
def test_the_locals_that_a_part_reads_are_declared_before_it(name: str) -> None:
    (path,) = (path for path in LUA.rglob(f"{name}.lua") if path.parent.name != "include")
    before, *rest = re.split(r"^ *--- @include (\w+)\n", path.read_text(), flags=re.MULTILINE)
    for part, after in zip(rest[::2], rest[1::2], strict=True):
        file = LUA / "include" / f"{part}.lua"
        assert head(file)[0] <= declared_locals(before), part
        before += scripts.resolve_includes(file.read_text(), LUA / "include") + after


def test_a_wrong_head_is_detected() -> None:
    part = "local x, y = z, 1\nif x then\n  local w = KEYS[1]\n  old = w\nend\nfor at = 1, 2 do f(v.name, at) end\n"
    assert reads_and_sets(part) == ({"z", "v", "f"}, {"x", "y", "old"})


def test_a_part_is_inserted_without_its_head_at_the_indent_of_the_include_line(tmp_path: Path) -> None:
    (tmp_path / "one.lua").write_text("-- What it is.\n-- READS\n-- SETS x\n-- Why.\nlocal x = 1\n\n--- @include two\n")
    (tmp_path / "two.lua").write_text("-- Another.\n-- READS x\n-- SETS\nx = x + 1\n")
    script = "if a then\n  --- @include one\nend\n"
    assert scripts.resolve_includes(script, tmp_path) == "if a then\n  -- Why.\n  local x = 1\n\n  x = x + 1\nend\n"


@pytest.mark.parametrize("name", ["nothing", "../session/append", "", "now x"])
def test_a_missing_part_is_an_error(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such part"):
        scripts.resolve_includes(f"return 1\n--- @include {name}\n", LUA / "include")


def test_a_part_that_includes_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.lua").write_text("-- Itself.\n-- READS\n-- SETS\n--- @include one\n")
    with pytest.raises(RecursionError):
        scripts.resolve_includes("--- @include one\n", tmp_path)


def test_only_scripts_are_scripts() -> None:
    assert set(scripts.names()) == {path.stem for path in LUA.glob("*/*.lua") if path.parent.name != "include"}
    assert not set(scripts.names()) & {part.stem for part in PARTS}
    for name in ("now", "README", "nothing"):
        with pytest.raises(FileNotFoundError, match=name):
            scripts.load(name)
    assert not [name for name in scripts.names() if b"@include" in scripts.load(name).source]

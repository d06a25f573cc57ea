"""Advice is a command that runs: every `redismem …` line of the package, the pages and the examples is parsed.

In strings that a program prints, a line is complete: it has each argument that its command needs. Prose may name a
command alone. A line in capitals, such as `redismem show ID`, has placeholders.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from cyclopts import CycloptsError, MissingArgumentError

from redismem.cli.app import parse
from redismem.cli.commands import COMMANDS, MOVED
from redismem.cli.terminal import Stop

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "redismem").rglob("*.py"))
PROGRAMS = [*PACKAGE, *sorted((ROOT / "examples").rglob("*.py"))]
PAGE = [
    path for ending in ("js", "html") for path in sorted((ROOT / "redismem" / "web" / "static").rglob(f"*.{ending}"))
]
FILES = [ROOT / "Makefile", ROOT / "docker-compose.yml", *sorted((ROOT / "docs").rglob("*.yml"))]
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
TEXTS += [ROOT / "lua" / "README.md", ROOT / "tests" / "README.md", ROOT / "benchmarks" / "README.md"]
END = re.compile(r"[|>&;#]|\\$")
NAMES = {*COMMANDS, *(name.partition(" ")[0] for name in MOVED)}
BARE = re.compile(rf"(?<![`/\w.-])redismem ((?:{'|'.join(sorted(NAMES))})\b[^`\n]*)")


def quoted(text: str) -> Iterator[str]:
    """Yield what follows `redismem` in backticks."""
    for line in re.findall(r"`(?:[A-Z_]+=\S+ )*redismem\s([^`]+)`", text):
        yield " ".join(line.split())


def typed(text: str) -> Iterator[str]:
    """Yield the command lines of fenced blocks, and of recipes and scripts."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for body in (body for language, body in blocks if language in ("sh", "console", "text", "")):
        yield from re.findall(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*redismem +(.*)$", body, re.MULTILINE)


def listed(text: str) -> Iterator[str]:
    """Yield the arguments of containers in blocks of YAML."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) or [text]
    for body in blocks:
        for _, words in re.findall(r"^ +(args|command): (\[.*\])$", body, re.MULTILINE):
            arguments = yaml.safe_load(words)
            if arguments[0] in COMMANDS:
                yield shlex.join(arguments)


def docstrings(tree: ast.AST) -> set[int]:
    """Return the identities of the nodes that are docstrings, or texts below a constant."""
    bodies = [node.body for node in ast.walk(tree) if hasattr(node, "body") and isinstance(node.body, list)]
    nodes = [node for body in bodies for node in body if isinstance(node, ast.Expr)]
    return {id(node.value) for node in nodes}


def printed(path: Path) -> Iterator[str]:
    """Yield the command lines in the strings that a file prints. A value in a string stands as NAME."""
    tree = ast.parse(path.read_text())
    left_out = docstrings(tree)
    left_out |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        match node:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=parts):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "NAME" for part in parts)
            case _:
                continue
        yield from quoted(text)
        yield from BARE.findall(text)


@cache
def refusal(line: str, *, complete: bool) -> str | None:
    """Return why the command line does not run; `None` if it does. One that is not complete may be a name alone."""
    words = shlex.split(END.split(line)[0])
    if words and words[-1] == "…":
        words, complete = words[:-1], False
    if not words or words[0] in ("--help", "--version", "NAME") or words[0].startswith("{"):
        return None
    if words[0] not in COMMANDS:
        return f"there is no command {words[0]}"
    try:
        parse(words)
    except MissingArgumentError as missing:
        return str(missing) if complete or len(words) > 2 else None
    except (CycloptsError, Stop) as refused:
        return str(refused)
    return None


def test_what_programs_and_pages_say_runs() -> None:
    wrong = [(str(path.relative_to(ROOT)), *each) for path in PROGRAMS for each in wrong_lines(in_program(path))]
    pages = (*PAGE, *FILES, *TEXTS)
    wrong += [(str(path.relative_to(ROOT)), *each) for path in pages for each in wrong_lines(on_page(path))]
    assert wrong == []


def in_program(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the lines that a program prints, and those that it only names, each with whether it must be complete."""
    yield from ((line, True) for line in printed(path))
    yield from ((line, False) for line in quoted(path.read_text()))


def on_page(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a page, each with whether it must be complete."""
    text = path.read_text()
    yield from ((line, False) for line in quoted(text))
    typed_lines = re.findall(r"\$\(BIN\)/redismem (.*?)(?: \$\(ARGS\))?(?:;|$)", text, re.MULTILINE)
    yield from ((line, True) for line in (*typed(text), *listed(text), *typed_lines))


def wrong_lines(lines: Iterable[tuple[str, bool]]) -> list[tuple[str, str]]:
    return [(line, why) for line, complete in lines if (why := refusal(line, complete=complete))]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("show", "SESSION requires an argument"),
        ("dead retry", "no command dead"),
        ("status --nothing", "--nothing"),
        ("serve shop", "takes no arguments"),
        ("list sesions", "takes nothing, or one of"),
    ],
)
def test_a_line_that_does_not_run_is_noticed(line: str, why: str) -> None:
    assert why in (refusal(line, complete=True) or "")


def test_lines_are_found_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        '"""Run `redismem x`."""\nprint(f"see `redismem show {id}`", "run: redismem dead")\n'
    )
    assert list(printed(tmp_path / "program.py")) == ["show NAME", "dead"]
    assert list(quoted("a `REDISMEM_URL=x redismem\nlist dead` b `x`")) == ["list dead"]
    assert list(typed("```console\n$ redismem list\noutput\n```\n```sh\nA=b redismem status\n```\n")) == [
        "list",
        "status",
    ]
    assert list(listed('    command: ["worker", "--once"]\n    command: ["sleep", "5"]\n')) == ["worker --once"]

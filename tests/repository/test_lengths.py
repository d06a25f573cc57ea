"""Limits on the length of files, scripts and functions in the package, its tests, benchmarks and examples."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent

import pytest

ROOT = Path(__file__).parents[2]
PYTHON_LINES = 400
FUNCTION_LINES = 40
LUA_LINES = 60
# A script with one order of writes, which parts in include/ would hide. Each has its length, so that it does not grow.
LONG_SCRIPTS = {"session/edit.lua": 90, "queue/commit.lua": 63}
Check = Callable[[Path], list[str]]


def lines_of_code(script: Path) -> int:
    return sum(not line.strip().startswith(("--", "#!")) for line in script.read_text().splitlines() if line.strip())


def sources(root: Path) -> Iterator[Path]:
    """All Python there is: the package, its tests, benchmarks and examples."""
    for folder in (root / name for name in ("redismem", "tests", "benchmarks", "examples")):
        yield from sorted(folder.rglob("*.py"))


def check_length(root: Path) -> list[str]:
    """A file that is too long usually means that something stands in the wrong room."""
    found = [(path, len(path.read_text().splitlines()), PYTHON_LINES) for path in sources(root)]
    for path in (root / "lua").rglob("*.lua"):
        most = LONG_SCRIPTS.get(path.relative_to(root / "lua").as_posix(), LUA_LINES)
        found += [(path, lines_of_code(path), most)]
    return [
        f"{path.relative_to(root)}: {lines} lines, {most} are allowed" for path, lines, most in found if lines > most
    ]


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines from `def` to the last one, without the docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    match function.body[0]:
        case ast.Expr(value=ast.Constant(value=str()), end_lineno=int(last)) as docstring:
            lines -= last - docstring.lineno + 1
    return lines


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions. Expressions, which hold none, are most of a tree."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from functions(node)
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        yield tree


def check_functions(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: {node.name} has {lines_of(node)} lines, {FUNCTION_LINES} are allowed"
        for path in sources(root)
        for node in functions(ast.parse(path.read_text(), str(path)))
        if lines_of(node) > FUNCTION_LINES
    ]


@pytest.mark.parametrize("check", [check_length, check_functions])
def test_nothing_is_too_long(check: Check) -> None:
    found = check(ROOT)
    assert not found, "\n".join(found)


LONG = "def f():\n" + "    x = 1\n" * 40


@pytest.mark.parametrize(
    ("check", "file", "source", "complaint"),
    [
        (
            check_length,
            "redismem/session/session.py",
            "\n" * 401,
            "redismem/session/session.py: 401 lines, 400 are allowed",
        ),
        (check_length, "tests/cli/test_app.py", "\n" * 401, "tests/cli/test_app.py: 401 lines, 400 are allowed"),
        (check_length, "examples/worker.py", "\n" * 401, "examples/worker.py: 401 lines, 400 are allowed"),
        (check_length, "benchmarks/flat.py", "\n" * 401, "benchmarks/flat.py: 401 lines, 400 are allowed"),
        (check_length, "lua/session/read.lua", "-- header\n" + "local x = 1\n" * 61, "61 lines, 60 are allowed"),
        (
            check_functions,
            "redismem/session/session.py",
            LONG,
            "redismem/session/session.py: f has 41 lines, 40 are allowed",
        ),
        (check_functions, "tests/cli/test_app.py", LONG.replace("def", "async def"), "f has 41 lines"),
        (check_functions, "benchmarks/flat.py", f"class A:\n{indent(LONG, '    ')}", "f has 41 lines"),
    ],
)
def test_each_check_can_fail(tmp_path: Path, check: Check, file: str, source: str, complaint: str) -> None:
    def write(file: str, source: str) -> None:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    docstring = '    """Two lines\n    of docstring."""\n'
    write("redismem/memory.py", "\n" * 358 + LONG.replace("    x = 1\n", docstring, 1))
    write("lua/session/read.lua", "-- header\n" * 99 + "local x = 1\n" * 60)
    assert check(tmp_path) == []
    write(file, source)
    (found,) = check(tmp_path)
    assert complaint in found

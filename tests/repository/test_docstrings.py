"""Public names have docstrings, and no docstring is a fragment that leaves a stranger guessing.

Public are the classes, methods and functions of the public rooms. A fragment begins with "Of", "As" or "Those": it says
something of what it does not name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "redismem"
ROOMS = (
    "errors",
    "settings",
    "context",
    "events",
    "session",
    "memory",
    "blocking",
    "inspection",
    "workers",
    "store",
    "project",
)
# Their methods do what a class with docstrings says: Store, Transport, pydantic's settings, Strategy.
TOLD_ELSEWHERE = ("CountingTransport", "Settings", "Summarize", "Trim")

FRAGMENT = re.compile(r"\s*(Of|As|Those)\s")
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(tree: ast.Module) -> Iterator[tuple[str, Documented]]:
    """Name and node of each public class, function and method; of a class that is hidden, nothing."""
    for node in tree.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
                yield from ((f"{node.name}.{each.name}", each) for each in methods if not each.name.startswith("_"))


def is_setter(node: Documented) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "setter" for each in node.decorator_list)


def undocumented(source: str) -> list[str]:
    return [
        f"{name} has no docstring"
        for name, node in public(ast.parse(source))
        if ast.get_docstring(node) is None and not is_setter(node) and name.partition(".")[0] not in TOLD_ELSEWHERE
    ]


def fragments(source: str) -> list[str]:
    """The lines at which fragments begin, with their words: in docstrings of attributes and of private names too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(lineno=int(line), value=ast.Constant(value=str(text))) if FRAGMENT.match(text):
                found.append(f"line {line}: {text.strip().splitlines()[0]}")
    return found


def files() -> list[Path]:
    return [path for room in ROOMS for path in sorted([*PACKAGE.glob(f"{room}.py"), *PACKAGE.glob(f"{room}/*.py")])]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_public_name_has_a_docstring(path: Path) -> None:
    assert undocumented(path.read_text()) == []


@pytest.mark.parametrize("folder", ["redismem", "tests", "benchmarks", ".ci"])
def test_no_docstring_is_a_fragment(folder: str) -> None:
    found = {path.relative_to(ROOT): fragments(path.read_text()) for path in sorted((ROOT / folder).rglob("*.py"))}
    assert found, "there is no such folder"
    wrong = [f"{path}, {each}" for path, places in found.items() for each in places]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class A:\n    pass", "A has no docstring"),
        ("def f():\n    pass", "f has no docstring"),
        ('class A:\n    """Says."""\n    async def f(self): ...', "A.f has no docstring"),
    ],
)
def test_it_can_fail(source: str, complaint: str) -> None:
    assert undocumented(source) == [complaint]
    assert undocumented("def _f():\n    pass\nclass _A:\n    def f(self): ...") == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ('"""As the other."""', "line 1: As the other."),
        ('A = 1\n"""Of the other."""', "line 2: Of the other."),
        ('class A:\n    """\n    Those that\n    are."""', "line 2: Those that"),
        ('class A:\n    a: int\n    """Of the other."""', "line 3: Of the other."),
        ('class A:\n    def _f(self):\n        self.a = 1\n        """Of the other."""', "line 4: Of the other."),
        ('def _f():\n    """As the other."""', "line 2: As the other."),
        ('def f():\n    async def g():\n        """As the other."""', "line 3: As the other."),
    ],
)
def test_a_fragment_is_found(source: str, complaint: str) -> None:
    assert fragments(source) == [complaint]
    assert fragments('a = "As the other."\n"""Assets.\n\nAs the other, of those."""') == []

"""Public names have docstrings, and every docstring begins with a verb or a noun.

The public names are the classes, methods and functions of the public rooms. A docstring that begins with "What", "Who",
"Whether", "Of" or a similar word is a fragment: it does not name its subject.
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

FRAGMENT = re.compile(r"\s*(What|Who|How|Where|Why|Which|Whether|Of|As|Those|That)\b")
PERHAPS_FRAGMENT = re.compile(rf"[\"'](\\n|\\\n)?{FRAGMENT.pattern}")
"""A fragment in source text, and words that are none: a file without them need not be parsed."""
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(tree: ast.Module) -> Iterator[tuple[str, Documented]]:
    """Yield name and node of each public class, function and method, without the methods of private classes."""
    for node in tree.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
                yield from ((f"{node.name}.{each.name}", each) for each in methods if not each.name.startswith("_"))


def is_setter(node: Documented) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "setter" for each in node.decorator_list)


def missing_docstrings(source: str) -> list[str]:
    return [
        f"{name} has no docstring"
        for name, node in public(ast.parse(source))
        if ast.get_docstring(node) is None and not is_setter(node) and name.partition(".")[0] not in TOLD_ELSEWHERE
    ]


def fragments(source: str) -> list[str]:
    """Return the line and text of each fragment, including docstrings of attributes and of private names."""
    places: list[str] = []
    if not PERHAPS_FRAGMENT.search(source):
        return places
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(lineno=int(line), value=ast.Constant(value=str(text))) if FRAGMENT.match(text):
                places.append(f"line {line}: {text.strip().splitlines()[0]}")
    return places


def files() -> list[Path]:
    return [path for room in ROOMS for path in sorted([*PACKAGE.glob(f"{room}.py"), *PACKAGE.glob(f"{room}/*.py")])]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_public_name_has_a_docstring(path: Path) -> None:
    assert missing_docstrings(path.read_text()) == []


@pytest.mark.parametrize("folder", ["redismem", "tests", "benchmarks", "examples", ".ci"])
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
    assert missing_docstrings(source) == [complaint]
    assert missing_docstrings("def _f():\n    pass\nclass _A:\n    def f(self): ...") == []


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
        *(
            (f'"""{word} it is."""', f"line 1: {word} it is.")
            for word in ("What", "Who", "How", "Where", "Why", "Which", "Whether", "That")
        ),
    ],
)
def test_a_fragment_is_found(source: str, complaint: str) -> None:
    assert fragments(source) == [complaint]
    assert fragments('a = "As the other."\n"""Assets.\n\nAs the other, of those."""\n"""Offset."""') == []

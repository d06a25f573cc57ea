"""What a caller can call says what it gives: every public class, method and function of the public rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "redismem"
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
# They say nothing of what the caller gets.
VAGUE = ("Of ", "As ", "Those ")
# Their methods do what a class with docstrings says: Store, Transport, pydantic's settings, Strategy.
TOLD_ELSEWHERE = ("ObservedStore", "CountingTransport", "Settings", "Summarize", "Trim")

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
    found = []
    for name, node in public(ast.parse(source)):
        text = ast.get_docstring(node)
        if text is None and not is_setter(node) and name.partition(".")[0] not in TOLD_ELSEWHERE:
            found.append(f"{name} has no docstring")
        elif text is not None and text.startswith(VAGUE):
            found.append(f"{name} does not say what it gives: {text.splitlines()[0]}")
    return found


def files() -> list[Path]:
    return [path for room in ROOMS for path in sorted([*PACKAGE.glob(f"{room}.py"), *PACKAGE.glob(f"{room}/*.py")])]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_public_name_says_what_it_gives(path: Path) -> None:
    assert undocumented(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class A:\n    pass", "A has no docstring"),
        ("def f():\n    pass", "f has no docstring"),
        ('class A:\n    """Says."""\n    async def f(self): ...', "A.f has no docstring"),
        ('def f():\n    """As the other."""', "f does not say what it gives: As the other."),
    ],
)
def test_it_can_fail(source: str, complaint: str) -> None:
    assert undocumented(source) == [complaint]
    assert undocumented("def _f():\n    pass\nclass _A:\n    def f(self): ...") == []

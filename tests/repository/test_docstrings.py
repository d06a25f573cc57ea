"""Every docstring begins with a verb or a noun; ruff checks that public names have one.

A docstring that begins with "What", "Who", "Whether", "Of" or a similar word is a fragment: it does not name its
subject.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FRAGMENT = re.compile(r"\s*(What|Who|How|Where|Why|Which|Whether|Of|As|Those|That)\b")
PERHAPS_FRAGMENT = re.compile(rf"[\"'](\\n|\\\n)?{FRAGMENT.pattern}")
"""A fragment in source text, and words that are none: a file without them need not be parsed."""


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


@pytest.mark.parametrize("folder", ["redismem", "tests", "benchmarks", "examples", ".ci"])
def test_no_docstring_is_a_fragment(folder: str) -> None:
    found = {path.relative_to(ROOT): fragments(path.read_text()) for path in sorted((ROOT / folder).rglob("*.py"))}
    assert found, "there is no such folder"
    wrong = [f"{path}, {each}" for path, places in found.items() for each in places]
    assert not wrong, "\n".join(wrong)


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

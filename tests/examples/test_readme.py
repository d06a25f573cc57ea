"""Every example has its line in the README, and a test."""

from __future__ import annotations

from pathlib import Path

from support.example_processes import EXAMPLES, read_commands


def test_every_example_has_a_line_and_a_test() -> None:
    examples = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")}
    assert set(read_commands()) == examples
    tests = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{name.removesuffix('.py')}.py" for name in examples} <= tests

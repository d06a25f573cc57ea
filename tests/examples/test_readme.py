"""Every example has a line in the README and a test, takes the words of its command, and says its usage for fewer."""

from __future__ import annotations

import ast
import asyncio
import shlex
import sys
from pathlib import Path

import pytest
from support.example_processes import EXAMPLES, read_commands

COMMANDS = {file: shlex.split(command) for file, command in read_commands().items()}
TAKING_WORDS = [path.name for path in sorted(EXAMPLES.glob("*.py")) if "sys.argv" in path.read_text()]


def start(file: str, *words: str) -> str | None:
    """Start an example with a `main` of the same signature that does nothing. Return the text it exits with, if any."""
    tree = ast.parse((EXAMPLES / file).read_text())
    (main,) = (node for node in tree.body if getattr(node, "name", None) == "main")
    assert isinstance(main, ast.FunctionDef | ast.AsyncFunctionDef)
    main.body = [ast.Return(ast.Constant(0))]
    started = ast.fix_missing_locations(ast.Module([main, tree.body[-1]], []))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [file, *words])
        try:
            exec(compile(started, file, "exec"), {"__name__": "__main__", "asyncio": asyncio, "sys": sys})
        except SystemExit as end:
            return str(end.code) if end.code else None
    return None


def test_every_example_has_a_line_and_a_test() -> None:
    examples = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")}
    assert set(read_commands()) == examples
    tests = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{name.removesuffix('.py')}.py" for name in examples} <= tests


@pytest.mark.parametrize("file", TAKING_WORDS)
def test_a_command_has_the_words_that_its_example_takes_and_fewer_get_the_usage(file: str) -> None:
    program, _, _, *words = COMMANDS[file]
    if program == "python":
        assert start(file, *words) is None
    usage = f"usage: python -m examples.{file.removesuffix('.py')} "
    for count in {0, 1, *range(len(words))}:
        refused = start(file, *words[:count], *["x"] * (count - len(words)))
        assert refused is None or refused.startswith(usage)


def test_a_missing_word_gets_the_usage() -> None:
    assert start("langgraph_agent.py", "order-7") == "usage: python -m examples.langgraph_agent USER THREAD TEXT"

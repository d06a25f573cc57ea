"""The command line: `redismem`, `python -m redismem`. One file per group of commands, imported on use."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; docs/operations.md has the table of codes."""
    from redismem.cli.overview import answer
    from redismem.cli.streams import accept_any_text

    accept_any_text()
    arguments = sys.argv[1:] if arguments is None else arguments
    code = answer(arguments)
    if code is None:
        from redismem.cli.app import run

        code = run(arguments)
    return code

"""The command line: `redismem`, `python -m redismem`. One file per group of commands, imported on use."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 success, 1 failure, 2 wrong usage."""
    from redismem.cli.app import run

    return run(sys.argv[1:] if arguments is None else arguments)

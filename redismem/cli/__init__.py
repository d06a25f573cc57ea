"""The command line: `redismem`, `python -m redismem`. One file a group of commands, imported when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and gives its exit code: 0 all is well, 1 something is not, 2 it was called wrongly."""
    from redismem.cli.app import run

    return run(sys.argv[1:] if arguments is None else arguments)

"""The output streams: one-line errors, terminals without UTF-8, and pipes whose reader has gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from redismem.inspection.figures import printable


def complain(text: str) -> None:
    """Print the text as one line on stderr."""
    print(f"redismem: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def complain_all(problems: Sequence[tuple[str, str]], count: int) -> None:
    """Print the problems, each with its place, and how many more there are."""
    for place, text in problems:
        complain(f"{place}: {text}")
    if count > len(problems):
        complain(f"and {count - len(problems):,} more problems")


def accept_any_text() -> None:
    """Let both streams replace characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8, a lone surrogate in a message


def end_broken_pipe() -> int:
    """Return the exit code, and keep the flush of the buffer at exit from failing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1

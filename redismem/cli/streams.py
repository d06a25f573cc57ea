"""The output streams: one-line errors, terminals without UTF-8, and pipes whose reader has gone."""

from __future__ import annotations

import os
import sys

from redismem.inspection.figures import printable


def complain(text: str) -> None:
    """Print the text as one line on stderr."""
    print(f"redismem: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def accept_any_text() -> None:
    """Let both streams replace characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8, a lone surrogate in a message


def end_broken_pipe() -> int:
    """Return the exit code, and keep the flush of the buffer at exit from failing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1

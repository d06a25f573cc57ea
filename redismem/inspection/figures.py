"""Texts for people, in a terminal and on the page: durations, sizes, counts, and names without control characters."""

from __future__ import annotations

import unicodedata


def duration(ms: float) -> str:
    """Format a duration with about two digits: 350 ms, 4.2 s, 3 min, 5 h, 12 days."""
    seconds = abs(ms) / 1000
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{abs(ms):.0f} ms"


def size(count: int) -> str:
    """Format a number of bytes: 9,999 B, 12 KiB, 34 MiB."""
    if count < 10_000:
        return f"{count:,} B"
    return f"{count / 1024:,.0f} KiB" if count < 10 * 1024 * 1024 else f"{count / 1024 / 1024:,.0f} MiB"


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: 1 session, 2,000 sessions."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    """Return the text with its control characters escaped, so that it cannot steer the terminal.

    Line breaks and tabs stay.
    """
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _STEERING else _escape(char) for char in text
    )


# Control characters, format characters (direction marks too), surrogates.
_STEERING = {"Cc", "Cf", "Cs"}


def _escape(char: str) -> str:
    return char if char == "\u200d" else char.encode("unicode_escape").decode("ascii")

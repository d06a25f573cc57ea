"""`redismem --help`, `redismem --version` and words that are no command, answered without the commands' libraries."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from redismem.cli.commands import COMMANDS, HEADINGS, HELP, HELP_OF, MOVED
from redismem.cli.streams import complain, end_broken_pipe

_HELP_FLAGS, _VERSION_FLAGS = ("--help", "-h"), ("--version",)
_OPTIONS = {"--help (-h)": "Display this message and exit.", "--version": "Display application version."}
_LEAST_WIDTH = 40


def answer(arguments: Sequence[str]) -> int | None:
    """Answer arguments without a command, and return the exit code. None means that they begin with a command."""
    first = arguments[0] if arguments else _HELP_FLAGS[0]
    if (moved := _explain_moved(arguments)) is not None:
        complain(moved)
        return 2
    if first in COMMANDS:
        return None
    try:
        if first in _HELP_FLAGS:
            print("\n".join(_overview(shutil.get_terminal_size().columns)), flush=True)
        elif first in _VERSION_FLAGS:
            from importlib.metadata import version  # takes longer than all else here

            print(version("redismem"), flush=True)
        else:
            complain(f"{_explain_unknown(first)} (see redismem --help)")
            return 2
    except BrokenPipeError:
        return end_broken_pipe()
    return 0


def _overview(width: int) -> Iterator[str]:
    width = max(_LEAST_WIDTH, width)
    yield from ("Usage: redismem COMMAND", "")
    for paragraph in HELP.replace("`", "").strip().split("\n\n"):
        yield from (*textwrap.wrap(paragraph, width), "")
    lines = HELP_OF | _OPTIONS
    names_width = max(map(len, lines)) + 2
    for place, name in enumerate((*COMMANDS, *_OPTIONS)):
        heading = HEADINGS.get(name) or ("Options" if name == next(iter(_OPTIONS)) else "")
        if heading:
            yield from ([""] if place else []) + [f"{heading}:"]
        label, indent = f"  {name:{names_width}}", " " * (names_width + 2)
        yield from textwrap.wrap(lines[name].replace("`", ""), width, initial_indent=label, subsequent_indent=indent)


def _explain_moved(arguments: Sequence[str]) -> str | None:
    """Name the present command line for an earlier one; `None` if these arguments are none."""
    for count in (2, 1):
        old, others = " ".join(arguments[:count]), arguments[count:]
        if (new := MOVED.get(old)) is None:
            continue
        if any("://" in word for word in others):  # an address may contain a password
            others = ()
        if old == "recall" and len(others) > 1:
            others = (others[1], "--session", others[0], *others[2:])
        import shlex

        return f"redismem {old} is now: redismem {shlex.join([*new.split(), *others])}"
    return None


def _explain_unknown(word: str) -> str:
    from difflib import get_close_matches

    if word.startswith("-"):
        return f'Unknown option "{word}".'
    alike = [f"--{word}"] if f"--{word}" in _HELP_FLAGS + _VERSION_FLAGS else get_close_matches(word, COMMANDS, 1)
    return f'Unknown command "{word}".' + (f' Did you mean "{alike[0]}"?' if alike else "")

"""Output for terminals and programs: safe text, tables, sizes and durations, JSON, one-line errors."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redismem.inspection.figures import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

UNREACHABLE = 3
"""The exit code if Redis does not answer or refuses a call."""
_UUID_CHARS = 36
_LAST_CHARS = 40


class Stop(Exception):
    """An error that ends a command with one line on stderr and an exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def ask(question: str, *, yes: bool) -> None:
    """Ask on the terminal before a command removes or overwrites something. `yes` is the answer of `--yes`.

    Raises:
        Stop: The answer is no, or there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Stop(f"{question} Without a terminal, confirm with --yes; nothing was changed", 2)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # the event loop's would wait for the answer
    try:
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        raise Stop("interrupted; nothing was changed", 128 + signal.SIGINT) from None
    finally:
        signal.signal(signal.SIGINT, handler)
    if answer.strip().lower() not in ("y", "yes"):
        raise Stop("cancelled; nothing was changed")


def check_file(path: Path) -> None:
    """Raise Stop if there is no such file."""
    if not path.is_file():
        raise Stop(f"{path} is not a regular file" if path.exists() else f"there is no file {path}", 2)


def console(*, stderr: bool = False) -> Console:
    """Return a console: colours only on a terminal and without NO_COLOR; 80 columns in a pipe."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, emoji=False)


def grid(rows: Iterable[Sequence[str | Text]], *, numbers: bool = False) -> Table:
    """Return a table without headings, whose last column may wrap. `numbers` aligns the second column to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right" if numbers else "left", min_width=9 if numbers else None)
    table.add_column(overflow="fold")
    for *cells, last in rows:
        table.add_row(*cells, Text(last, "dim") if isinstance(last, str) else last)
    return table


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose last column may wrap; nothing without rows.

    A heading may have several lines. If the terminal is too narrow for the table, each row takes two lines; the first
    has the first cell, the one to copy.
    """
    if not rows:
        return
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, (heading, *cells) in enumerate(zip(headings, *rows, strict=True)):
        is_number = all(cell[:1].isdigit() for cell in cells if cell.strip("·—"))
        widest = max(len(line) for text in (heading, *cells) for line in text.split("\n"))
        is_last = place == len(headings) - 1
        table.add_column(
            heading,
            justify="right" if place and is_number else "left",
            min_width=min(widest, _LAST_CHARS) if is_last else min(widest, _UUID_CHARS),
            no_wrap=not is_last and widest <= _UUID_CHARS,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    anywhere = out.options.update(max_width=10_000)  # else the measurement is capped at the terminal's width
    if Measurement.get(out, anywhere, table).minimum <= out.width:
        out.print(table)
        return
    for first, *others in rows:
        out.print(Text(first, overflow="fold"))
        pairs = zip(headings[1:], others, strict=True)
        cells = [f"{heading} {cell}".replace("\n", " ").strip() for heading, cell in pairs if cell]
        out.print(Text(f"  {' · '.join(cells)}", "dim"))


def print_json(document: Any) -> None:
    """Print the document as ASCII JSON, safe for lone surrogates and for any terminal."""
    print(json.dumps(document, indent=2))


def one_line(text: str, limit: int) -> str:
    """Return the text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return printable(line if len(line) <= limit else line[: limit - 1] + "…")


@contextlib.contextmanager
def progress(unit: str) -> Iterator[Callable[[int], None]]:
    """Show a count on one line of stderr, and erase it at the end. Does nothing unless stderr is a terminal."""
    is_terminal = sys.stderr.isatty()

    def show(count: int) -> None:
        if is_terminal:
            print(f"\r{count:,} {unit}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def text_of_message(message: dict[str, Any]) -> str:
    """Return the text of a message of any format, with its tool calls and results; other parts by their kind."""
    from redismem.formats.elements import kind_of
    from redismem.formats.reading import read_message
    from redismem.formats.tool_calls import parts_text, text_of

    words = []
    for element in read_message(message):
        if element.call is not None and not element.is_repeat:
            words.append(f"calls {element.call.name}({text_of(element.call.arguments)})")
        if element.result is not None:
            words.append(text_of(element.result.content))
        elif element.call is None:
            own_text = element.text if element.kind == "text" else parts_text(element.inner)
            words.append(own_text if element.kind in ("text", "nested") else f"[{kind_of(element.part)}]")
    return " ".join(words)

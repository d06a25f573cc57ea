"""Logs of a command that runs for long: a line each on stderr, for a person or as JSON. Never a text of a message."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from redismem.cli.terminal import printable
from redismem.events import FACTS

_OURS = ("redismem", "apscheduler")


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a line says, with the facts of a record of redismem.

    Of an error only its kind; of other libraries only who speaks: they may quote anything.
    """
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line: dict[str, Any] = {"time": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name}
    sender = record.name.partition(".")[0]
    text = record.getMessage() if sender in _OURS else "something went wrong"
    line["message"] = printable(" ".join(text.split()))
    if sender == "redismem":
        line |= {name: vars(record)[name] for name in FACTS if name in vars(record)}
    if record.exc_info and record.exc_info[0] is not None:
        line["error"] = record.exc_info[0].__name__
    return line


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(line_of(record))


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = line_of(record)
        who = "" if record.name.startswith("redismem") else f"{record.name}: "
        # A sentence of ours names the error it is about.
        error = f" ({line['error']})" if "error" in line and not hasattr(record, "error") else ""
        return f"{line['time']} {line['level']:7} {who}{line['message']}{error}"


@contextlib.contextmanager
def logs_on_stderr(*, as_json: bool) -> Iterator[logging.Logger]:
    """All that redismem logs from `info`, all that others log from `warning`. Gives the command's own logger."""
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_JsonLine() if as_json else _Line())
    everyone, ours = logging.getLogger(), logging.getLogger("redismem")
    before = ours.level
    everyone.addHandler(shown)
    ours.setLevel(logging.INFO)
    try:
        yield logging.getLogger("redismem.worker")
    finally:
        ours.setLevel(before)
        everyone.removeHandler(shown)

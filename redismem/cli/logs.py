"""Logs of long-running commands: one line per record on stderr, as text or JSON. Never message text."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from redismem.events import FACTS
from redismem.inspection.figures import printable

_OURS = ("redismem", "apscheduler")


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a log line, with the attributes of redismem's own records.

    The texts of errors and of other libraries' records may quote messages, so only the error's class and the library's
    name are logged.
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
        sender = "" if record.name.startswith("redismem") else f"{record.name}: "
        # The text of a redismem record with an `error` attribute already names the error.
        error = f" ({line['error']})" if "error" in line and not hasattr(record, "error") else ""
        return f"{line['time']} {line['level']:7} {sender}{line['message']}{error}"


@contextlib.contextmanager
def logs_on_stderr(*, as_json: bool) -> Iterator[logging.Logger]:
    """Log redismem from level `info` and other libraries from `warning`. Yields the command's own logger."""
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

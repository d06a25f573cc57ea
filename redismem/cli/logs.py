"""Logs of a command that runs for long: a line each on stderr, for a person or as JSON. Never a text of a message."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from redismem.cli.terminal import printable

_SESSION = re.compile(r"session ([0-9a-f]{12}): ")
_MS = re.compile(r"\bin ([0-9]+) ms\b")
_OURS = ("redismem", "apscheduler")


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a line says. Of an error only its kind; of other libraries only who speaks: they may quote anything."""
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line: dict[str, Any] = {"time": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name}
    text = record.getMessage() if record.name.partition(".")[0] in _OURS else "something went wrong"
    if session := _SESSION.match(text):
        line["session"] = session[1]
        text = text[session.end() :]
    if took := _MS.search(text):
        line["ms"] = int(took[1])
    line["message"] = printable(" ".join(text.split()))
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
        session = f"session {line['session']}: " if "session" in line else ""
        error = f" ({line['error']})" if "error" in line else ""
        return f"{line['time']} {line['level']:7} {who}{session}{line['message']}{error}"


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

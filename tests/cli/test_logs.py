"""A worker's log lines: one line each, hashes and durations, and never a text."""

import json
import logging
from typing import Any

import pytest

from redismem.cli.logs import logs_on_stderr

SECRET = "the text of a message"


@pytest.fixture(params=[True, False], ids=["json", "text"])
def logged(request: Any, capsys: Any) -> Any:
    """What is on stderr after a log call, and whether it is JSON."""

    def log(name: str, level: int, text: str, *arguments: object, error: Exception | None = None) -> str:
        with logs_on_stderr(as_json=request.param):
            logging.getLogger(name).log(level, text, *arguments, exc_info=error)
        return capsys.readouterr().err

    log.as_json = request.param
    return log


def test_a_line_of_ours(logged: Any) -> None:
    line = logged("redismem.worker", logging.INFO, "session %s: done in %d ms: %s", "0123456789ab", 12.7, "ok")
    if logged.as_json:
        found = json.loads(line)
        assert (found["session"], found["ms"], found["level"]) == ("0123456789ab", 12, "info")
        assert found["message"] == "done in 12 ms: ok"
    else:
        assert line.endswith(" info    session 0123456789ab: done in 12 ms: ok\n")


def test_of_an_error_only_its_kind(logged: Any) -> None:
    line = logged("redismem.worker", logging.WARNING, "failed", error=ValueError(SECRET))
    assert "ValueError" in line
    assert SECRET not in line
    assert line.count("\n") == 1


def test_of_others_only_who_speaks_and_only_warnings(logged: Any) -> None:
    line = logged("asyncio", logging.ERROR, f"Task exception was never retrieved {SECRET}", error=ValueError(SECRET))
    assert "asyncio" in line
    assert "ValueError" in line
    assert SECRET not in line
    assert logged("httpx", logging.INFO, "HTTP Request: POST https://example.org") == ""


def test_nothing_in_a_line_breaks_it_or_steers_a_terminal(logged: Any) -> None:
    line = logged("redismem", logging.INFO, "a\nb\x1b[2J\u202ec")
    assert line.count("\n") == 1
    assert not set("\x1b\u202e") & set(line)


def test_afterwards_logging_is_as_before(capsys: Any) -> None:
    before = logging.getLogger("redismem").level, list(logging.getLogger().handlers)
    with logs_on_stderr(as_json=False):
        pass
    assert (logging.getLogger("redismem").level, list(logging.getLogger().handlers)) == before

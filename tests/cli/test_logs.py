"""A worker's log records: one line per record, with its facts and without any message text."""

import json
import logging
from typing import Any

import pytest

from redismem.cli.logs import logs_on_stderr
from redismem.events import FACTS, facts

SECRET = "the text of a message"


class Logged:
    """A function that logs and returns the stderr output. `as_json` tells the format."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *, as_json: bool) -> None:
        self.as_json = as_json
        self._capsys = capsys

    def __call__(
        self, name: str, level: int, text: str, *arguments: object, raised: Exception | None = None, **extra: Any
    ) -> str:
        with logs_on_stderr(as_json=self.as_json):
            logging.getLogger(name).log(level, text, *arguments, exc_info=raised, extra=extra)
        return self._capsys.readouterr().err


@pytest.fixture(params=[True, False], ids=["json", "text"])
def logged(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Logged:
    """The log call in text or JSON format."""
    return Logged(capsys, as_json=request.param)


def test_a_record_of_redismem_is_one_line_with_its_facts(logged: Logged) -> None:
    known = facts(op="summary", session="0123456789ab", duration_ms=12, outcome="ok")
    line = logged("redismem.worker", logging.INFO, "session %s: done in %d ms", "0123456789ab", 12.7, **known)
    if logged.as_json:
        found = json.loads(line)
        assert set(found) == {"time", "level", "logger", "message", *known}
        assert {name: found[name] for name in known} == known
        assert (found["level"], found["message"]) == ("info", "session 0123456789ab: done in 12 ms")
    else:
        assert line.endswith("Z info    session 0123456789ab: done in 12 ms\n")


def test_facts_are_attributes_and_not_part_of_the_sentence(logged: Logged) -> None:
    line = logged("redismem.worker", logging.INFO, "session 0123456789ab: covered in 12 ms: ok")
    if logged.as_json:
        assert not set(FACTS) & set(json.loads(line))


def test_no_fact_clashes_with_an_attribute_of_a_record() -> None:
    record = logging.LogRecord("redismem", logging.INFO, "file", 1, "text", (), None)
    assert not {*vars(record), "message", "asctime", "taskName"} & set(FACTS)
    everything = dict.fromkeys(FACTS, "x")
    assert vars(logging.getLogger("x").makeRecord("x", 1, "", 1, "", (), None, extra=everything)).items() >= (
        everything.items()
    )


def test_an_error_is_logged_by_its_type_alone(logged: Logged) -> None:
    line = logged("redismem.worker", logging.WARNING, "failed", raised=ValueError(SECRET))
    assert "ValueError" in line
    assert SECRET not in line
    assert line.count("\n") == 1


def test_an_error_named_in_the_sentence_is_not_repeated(logged: Logged) -> None:
    known = facts(op="summary", error="ValueError")
    line = logged("redismem.worker", logging.WARNING, "failed: ValueError", raised=ValueError(SECRET), **known)
    assert SECRET not in line
    assert line.count("ValueError") == (2 if logged.as_json else 1)


def test_other_loggers_show_only_their_name_and_only_warnings(logged: Logged) -> None:
    text = f"Task exception was never retrieved {SECRET}"
    line = logged("asyncio", logging.ERROR, text, raised=ValueError(SECRET), session=SECRET)
    assert "asyncio" in line
    assert "ValueError" in line
    assert SECRET not in line
    assert logged("httpx", logging.INFO, "HTTP Request: POST https://example.org") == ""


def test_no_value_breaks_a_line_or_controls_the_terminal(logged: Logged) -> None:
    line = logged("redismem", logging.INFO, "a\nb\x1b[2J\u202ec")
    assert line.count("\n") == 1
    assert not set("\x1b\u202e") & set(line)


def test_logging_is_restored_afterwards(capsys: Any) -> None:
    before = logging.getLogger("redismem").level, list(logging.getLogger().handlers)
    with logs_on_stderr(as_json=False):
        pass
    assert (logging.getLogger("redismem").level, list(logging.getLogger().handlers)) == before

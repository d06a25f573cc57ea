"""Settings that contradict each other: code refuses them, the environment falls back."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem import InvalidSettings, Settings
from redismem.settings.environment import look

VARIABLES = [*(name.upper() for name in Settings.model_fields), "TRESHOLD", "MAX_SESSION", "ZZZZ", "SERVER_RATE"]
TEXTS = ["canary", "1", "10", "20", "0", "-1", "true", "trim", "none", "summarize", "1.5"]


def test_a_threshold_that_no_window_reaches_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="threshold 20 is over max_window_count 10"):
        Settings(threshold=20, max_window_count=10)
    assert Settings(threshold=20, max_window_count=20).overdue_count == 20


@pytest.mark.parametrize(
    ("given", "expected", "warned"),
    [
        ({"THRESHOLD": "20", "MAX_WINDOW_COUNT": "15"}, (10, 10_000), ["THRESHOLD", "MAX_WINDOW_COUNT"]),
        ({"RECENT_LIMIT": "50", "MAX_WINDOW_COUNT": "15"}, (10, 10_000), ["RECENT_LIMIT", "MAX_WINDOW_COUNT"]),
        ({"THRESHOLD": "15", "MAX_WINDOW_COUNT": "15"}, (15, 15), []),
        ({"RECENT_LIMIT": "13", "MAX_WINDOW_COUNT": "15"}, (15, 15), []),
        ({"RECENT_LIMIT": "3", "MAX_WINDOW_COUNT": "15"}, (10, 15), []),
    ],
)
def test_from_the_environment_both_fall_back(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    given: dict[str, str],
    expected: tuple[int, int],
    warned: list[str],
) -> None:
    for name, text in given.items():
        monkeypatch.setenv(f"REDISMEM_{name}", text)
    made = Settings()
    assert (made.threshold, made.max_window_count) == expected
    told = [record.getMessage() for record in caplog.records]
    assert all(any(f"REDISMEM_{name} is invalid" in text for text in told) for name in warned)
    assert bool(told) == bool(warned)


def test_a_contradiction_is_reported_only_for_the_given_variables(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REDISMEM_RECENT_LIMIT", "50")
    monkeypatch.setenv("REDISMEM_MAX_WINDOW_COUNT", "15")
    Settings()
    assert [record.__dict__["setting"] for record in caplog.records] == [
        "REDISMEM_MAX_WINDOW_COUNT",
        "REDISMEM_RECENT_LIMIT",
    ]
    assert all("recent_limit 50 is over max_window_count 15" in record.getMessage() for record in caplog.records)
    assert {each.why for each in look(Settings).complaints} == {"recent_limit 50 is over max_window_count 15"}


LIMITS = {
    "THRESHOLD": ["", "canary", "12", "500"],
    "RECENT_LIMIT": ["", "6", "18", "600"],
    "MAX_WINDOW_COUNT": ["", "10", "15", "550"],
}


@pytest.mark.parametrize("in_code", [{}, {"strategy": "trim"}, {"threshold": 14}, {"max_window_count": 16}])
@pytest.mark.parametrize("strategy", ["", "canary", "trim", "none"])
def test_no_environment_keeps_a_process_from_starting(
    monkeypatch: pytest.MonkeyPatch, strategy: str, in_code: dict[str, Any]
) -> None:
    """An invalid environment trims no message either, at any window limit."""
    for texts in product(*LIMITS.values()):
        given_texts = {name: text for name, text in zip(LIMITS, texts, strict=True) if text}
        with monkeypatch.context() as patched:
            for name, text in {**given_texts, **({"STRATEGY": strategy} if strategy else {})}.items():
                patched.setenv(f"REDISMEM_{name}", text)
            made, complaints = Settings(**in_code), look(Settings).complaints
        assert made.recent_limit <= made.threshold <= made.max_window_count, given_texts
        assert all(getattr(made, name) == value for name, value in in_code.items())
        if made.strategy == "trim" and not in_code and any(each.case == "kept" for each in complaints):
            assert made.recent_limit == made.overdue_count == made.max_window_count, given_texts


def test_code_overrides_an_environment_that_contradicts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_MAX_WINDOW_COUNT", "15")
    assert Settings(threshold=100).max_window_count == 10_000


@pytest.mark.parametrize("threshold", [2, 3, 7, 8, 11, 12, 13, 39])
def test_by_default_a_summary_covers_more_than_one_message(threshold: int, caplog: pytest.LogCaptureFixture) -> None:
    made = Settings(threshold=threshold)
    assert made.recent_limit < threshold
    assert made.recent_limit <= 6
    assert caplog.records == []


def test_a_recent_limit_at_the_threshold_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Each further message would need a summary, and so a call of the model."""
    assert Settings(threshold=8, recent_limit=8).recent_limit == 8
    (record,) = caplog.records
    assert "a summary of its own" in record.getMessage()
    caplog.clear()
    Settings(threshold=8, recent_limit=8, strategy="trim")  # each message trims one, which is cheap
    assert caplog.records == []


@given(given_texts=st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(TEXTS), max_size=5))
def test_a_look_names_what_settings_warn_of_and_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given_texts: dict[str, str]
) -> None:
    with monkeypatch.context() as patched:
        for name, text in given_texts.items():
            patched.setenv(f"REDISMEM_{name}", text)
        caplog.clear()
        seen = look(Settings)
        assert caplog.records == []
        Settings()
    told = {variable for record in caplog.records for variable in record.__dict__["setting"].split(", ")}
    named = {complaint.variable for complaint in seen.complaints}
    # A warning about a valid setting is no complaint.
    assert named <= told
    warned_of = {variable for variable in told if variable.removeprefix("REDISMEM_") in given_texts} - named
    assert warned_of <= {"REDISMEM_RECENT_LIMIT", "REDISMEM_IDLE_TIMEOUT_S"}
    assert "canary" not in repr(seen)
    assert {name.upper() for name in seen.given} == set(given_texts) & {name.upper() for name in Settings.model_fields}

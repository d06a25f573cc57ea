"""Settings that contradict each other are refused, whether they come from code or from the environment."""

from __future__ import annotations

from typing import Any

import pytest

from redismem import InvalidSettings, Settings


def test_a_threshold_that_no_window_reaches_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="threshold 20 is over max_window_count 10"):
        Settings(threshold=20, max_window_count=10)
    assert Settings(threshold=20, max_window_count=20).overdue_count == 20


@pytest.mark.parametrize(
    ("variables", "in_code", "said"),
    [
        (
            {"THRESHOLD": "20", "MAX_WINDOW_COUNT": "15"},
            {},
            "threshold 20 is over max_window_count 15 (REDISMEM_THRESHOLD, REDISMEM_MAX_WINDOW_COUNT)",
        ),
        ({"RECENT_LIMIT": "50"}, {}, "recent_limit 50 is over threshold 10 (REDISMEM_RECENT_LIMIT)"),
        (
            {"MAX_WINDOW_COUNT": "15"},
            {"threshold": 100},
            "threshold 100 is over max_window_count 15 (REDISMEM_MAX_WINDOW_COUNT)",
        ),
        ({"THRESHOLD": "15", "MAX_WINDOW_COUNT": "15"}, {}, ""),
        ({"RECENT_LIMIT": "13", "THRESHOLD": "15"}, {}, ""),
        ({"RECENT_LIMIT": "50"}, {"recent_limit": 3}, ""),
        ({"RECENT_LIMIT": "often"}, {"recent_limit": 3}, ""),
    ],
)
def test_a_contradiction_names_the_variables_that_take_part(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], in_code: dict[str, Any], said: str
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(f"REDISMEM_{name}", text)
    if not said:
        Settings(**in_code)
        return
    with pytest.raises(InvalidSettings) as refused:
        Settings(**in_code)
    assert str(refused.value) == f"settings: {said}"


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

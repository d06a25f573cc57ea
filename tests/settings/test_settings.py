"""Settings from code, settings from the environment, and invalid values."""

from __future__ import annotations

import logging
from typing import Any

import annotated_types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem import InvalidSettings, Memory, Settings
from redismem.blocking.memory import Memory as BlockingMemory
from redismem.errors import RedismemError

DEFAULTS = Settings.model_construct()
NUMBERS: dict[str, tuple[Any, Any, Any]] = {
    name: (
        field.annotation,
        next(part.ge for part in field.metadata if isinstance(part, annotated_types.Ge)),
        next(part.le for part in field.metadata if isinstance(part, annotated_types.Le)),
    )
    for name, field in Settings.model_fields.items()
    if field.annotation in (int, float)
}


# The replacements of invalid values in settings that decide about removal.
KEEPING = {
    "max_sessions": 1_000_000_000,
    "idle_timeout_s": 10 * 365 * 86_400,
    "keep_originals": True,
    "strategy": "none",
}


def instead_of(name: str) -> Settings:
    """Return the settings that result from invalid text in one variable."""
    return DEFAULTS.model_copy(update={name: KEEPING[name]}) if name in KEEPING else DEFAULTS


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    for record in caplog.records:
        keeps = "nothing is removed" in record.getMessage()
        assert (record.levelno, record.name) == (logging.ERROR if keeps else logging.WARNING, "redismem")
    caplog.clear()
    return texts


def test_the_defaults_are_as_documented() -> None:
    made = Settings()
    promised = {"threshold": 10, "recent_limit": 6, "idle_timeout_s": 86_400, "max_sessions": 1_000, "shards": 64}
    assert {name: getattr(made, name) for name in promised} == promised
    assert (made.url, made.idle_timeout_ms) == (None, 86_400_000)


def test_every_number_has_bounds_around_its_default_and_a_description() -> None:
    for name, (_, least, most) in NUMBERS.items():
        assert least <= getattr(DEFAULTS, name) <= most, name
        assert Settings.model_fields[name].description, name


UNUSABLE = {
    "nothing": "",
    "letters": "abc",
    "two points": "1.5.1",
    "too small": "-1",
    "infinite": "1e400",
    "no number": "nan",
    "too large": "99999999999999999999",
    "hexadecimal": "0x10",
    "JSON": "[1]",
    "a digit of another script": "１a",
}


def check_fallback(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, text: str) -> None:
    """Assert that invalid text in the environment falls back to the default with one warning that names both."""
    monkeypatch.setenv(f"REDISMEM_{name.upper()}", text)
    made = Settings()
    assert made == instead_of(name)
    (warning,) = warnings_of(caplog)
    assert f"REDISMEM_{name.upper()} " in warning
    assert repr(instead_of(name).model_dump()[name]).removesuffix(".0") in warning


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
@pytest.mark.parametrize("name", ["threshold", "idle_timeout_s"])
def test_an_invalid_number_in_the_environment_falls_back_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    check_fallback(monkeypatch, caplog, name, text)


def test_every_number_in_the_environment_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    for name in NUMBERS:
        with pytest.MonkeyPatch.context() as patch:
            check_fallback(patch, caplog, name, "abc")


@given(
    name=st.sampled_from(sorted(NUMBERS)),
    text=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
    | st.integers().map(str)
    | st.floats().map(str),
)
def test_a_number_is_within_its_bounds_or_the_default_for_any_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"REDISMEM_{name.upper()}", text)
        made = Settings()
    kind, least, most = NUMBERS[name]
    value = getattr(made, name)
    assert type(value) is kind
    assert least <= value <= most
    assert made.recent_limit <= made.threshold
    warnings = [warning for warning in warnings_of(caplog) if ") is in seconds: " not in warning]
    if warnings:
        assert len(warnings) == 1
        assert f"REDISMEM_{name.upper()} " in warnings[0]
        assert made == instead_of(name)
    else:
        assert float(text) == value


def test_valid_values_come_from_the_environment_unless_code_gives_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REDISMEM_THRESHOLD", " 20 ")
    monkeypatch.setenv("REDISMEM_IDLE_TIMEOUT_S", "90.5")
    monkeypatch.setenv("REDISMEM_URL", "redis://127.0.0.1:1/0")
    assert (Settings().threshold, Settings().idle_timeout_ms, Settings().url) == (20, 90_500, "redis://127.0.0.1:1/0")
    assert Settings(threshold=30).threshold == 30
    assert warnings_of(caplog) == []


def test_a_threshold_alone_lowers_the_default_recent_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert [Settings(threshold=threshold).recent_limit for threshold in (1, 4, 6, 7, 12)] == [1, 2, 3, 4, 6]
    monkeypatch.setenv("REDISMEM_THRESHOLD", "3")
    assert (Settings().threshold, Settings().recent_limit) == (3, 1)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        ({"THRESHOLD": "5", "RECENT_LIMIT": "7"}, ["THRESHOLD", "RECENT_LIMIT"]),
        ({"THRESHOLD": "abc", "RECENT_LIMIT": "11"}, ["THRESHOLD", "RECENT_LIMIT"]),
        ({"THRESHOLD": "7", "RECENT_LIMIT": "6"}, []),
    ],
)
def test_a_recent_limit_over_the_threshold_falls_back_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: dict[str, str], warned: list[str]
) -> None:
    for name, text in given.items():
        monkeypatch.setenv(f"REDISMEM_{name}", text)
    made = Settings()
    expected = (10, 6) if warned else (7, 6)
    assert (made.threshold, made.recent_limit) == expected
    warnings = warnings_of(caplog)
    assert len(warnings) == len(warned)
    assert all(f"REDISMEM_{name} " in line for name, line in zip(warned, warnings, strict=True))


@pytest.mark.parametrize(
    "given",
    [
        {"threshold": 0},
        {"threshold": "abc"},
        {"threshold": None},
        {"threshold": 2.5},
        {"recent_limit": 0},
        {"recent_limit": 11},
        {"threshold": 5, "recent_limit": 6},
        {"idle_timeout_s": 0},
        {"idle_timeout_s": -1},
        {"idle_timeout_s": float("nan")},
        {"idle_timeout_s": float("inf")},
        {"shards": 0},
        {"shards": 4097},
        {"max_batch_count": 1001},
        {"url": 5},
        {"no_such_setting": 1},
    ],
)
def test_an_invalid_value_in_code_is_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings(**given)
    assert isinstance(refused.value, (RedismemError, ValueError))
    assert any(name in str(refused.value) for name in given)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().threshold = 11  # type: ignore[misc]


def test_values_are_not_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("REDISMEM_THRESHOLD", "CANARY")
    monkeypatch.setenv("REDISMEM_URL", "redis://:CANARY@127.0.0.1:1/0")
    assert "CANARY" not in repr(Settings()) + str(Settings()) + caplog.text
    for value in ({"threshold": "CANARY"}, {"url": ["CANARY"]}):
        with pytest.raises(InvalidSettings) as refused:
            Settings(**value)
        assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["http://u:CANARY@h", "redis://:CANARY/x@h:6379", "redis://h:CANARY", "redis://h/0?socket_timeout=CANARY", "h"],
)
def test_an_invalid_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Memory.connect(url)
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_sessions", "10,000"),
        ("max_sessions", "10k"),
        ("max_sessions", "1e4"),
        ("idle_timeout_s", "1 day"),
        ("keep_originals", "yess"),
        ("strategy", "non"),
    ],
)
def test_an_invalid_value_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    monkeypatch.setenv(f"REDISMEM_{name.upper()}", text)
    made = Settings()
    assert getattr(made, name) == KEEPING[name]
    (error,) = warnings_of(caplog)
    assert error.startswith(f"REDISMEM_{name.upper()} is invalid")
    assert "nothing is removed until it is corrected" in error


def test_an_unknown_variable_is_warned_of_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("REDISMEM_MAX_SESSION", "REDISMEM_TRESHOLD", "REDISMEM_QQQQQQ", "REDISMEM_BENCH_URL", "OTHER_THING"):
        monkeypatch.setenv(name, "1")
    assert Settings() == DEFAULTS
    assert warnings_of(caplog) == [
        "REDISMEM_MAX_SESSION is not a setting; did you mean REDISMEM_MAX_SESSIONS?",
        "REDISMEM_QQQQQQ is not a setting",
        "REDISMEM_TRESHOLD is not a setting; did you mean REDISMEM_THRESHOLD?",
    ]


@pytest.mark.parametrize("url", ["", " "])
def test_an_empty_url_is_refused_and_not_taken_for_none(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(InvalidSettings, match="the Redis URL is empty"):
        Memory.connect(url)
    with pytest.raises(InvalidSettings, match="the Redis URL is empty"):
        BlockingMemory.connect(url)
    monkeypatch.setenv("REDISMEM_URL", url)
    with pytest.raises(InvalidSettings, match="the Redis URL is empty"):
        Memory.connect()


def test_no_url_at_all_is_an_embedded_store_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for connect in (Memory.connect, BlockingMemory.connect):
        connect()
        (warning,) = warnings_of(caplog)
        assert "end with it" in warning
        connect("memory://")
        assert warnings_of(caplog) == []
    with BlockingMemory.connect("memory://") as memory:
        assert memory.session("a").append({"role": "user", "content": "x"}).created


def test_a_recent_limit_alone_raises_the_threshold_over_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REDISMEM_RECENT_LIMIT", "50")
    assert (Settings().threshold, Settings().recent_limit) == (54, 50)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize(
    "given", [{"THRESHOLD": "6O"}, {"RECENT_LIMIT": "5O"}, {"THRESHOLD": "5", "RECENT_LIMIT": "7"}]
)
@pytest.mark.parametrize("in_code", [True, False])
def test_an_invalid_value_trims_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: dict[str, str], in_code: bool
) -> None:
    for name, text in given.items():
        monkeypatch.setenv(f"REDISMEM_{name}", text)
    monkeypatch.setenv("REDISMEM_STRATEGY", "trim")
    made = Settings(strategy="trim") if in_code else Settings()
    assert (made.strategy, made.threshold, made.recent_limit) == ("trim", 10_000, 10_000)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith("nothing is trimmed until")
    assert Settings(strategy="trim", threshold=20, recent_limit=5).recent_limit == 5


@pytest.mark.parametrize("url", ["memory", "memory://localhost/3?x=1", "redis", "://", "http://x"])
def test_an_invalid_address_is_refused(url: str) -> None:
    for connect in (Memory.connect, BlockingMemory.connect):
        with pytest.raises(InvalidSettings):
            connect(url)


@pytest.mark.parametrize(("tick_s", "lease_s"), [(1.0, 60.0), (0.5, 5.0), (60.0, 10.0)])
def test_a_session_is_queued_early_enough_for_a_second_worker(tick_s: float, lease_s: float) -> None:
    """The worker that holds the poll, and the worker that claimed the session, may both die: each costs a lease."""
    settings = Settings(tick_s=tick_s, lease_s=lease_s)
    looks_s = 2 * 10 * tick_s
    assert settings.lookahead_ms >= (looks_s + 2 * lease_s) * 1000

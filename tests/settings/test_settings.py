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


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    for record in caplog.records:
        assert (record.levelno, record.name) == (logging.WARNING, "redismem")
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


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
@pytest.mark.parametrize("name", ["threshold", "idle_timeout_s"])
def test_an_invalid_number_in_the_environment_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(f"REDISMEM_{name.upper()}", text)
    with pytest.raises(InvalidSettings, match=rf"^REDISMEM_{name.upper()} is invalid \(.+\)$"):
        Settings()


def test_every_invalid_variable_is_named_in_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NUMBERS:
        monkeypatch.setenv(f"REDISMEM_{name.upper()}", "CANARY")
    with pytest.raises(InvalidSettings) as refused:
        Settings()
    assert all(f"REDISMEM_{name.upper()} is invalid (" in str(refused.value) for name in NUMBERS)
    assert "CANARY" not in str(refused.value)


@given(
    name=st.sampled_from(sorted(NUMBERS)),
    text=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
    | st.integers().map(str)
    | st.floats().map(str),
)
def test_a_number_is_within_its_bounds_or_refused_for_any_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"REDISMEM_{name.upper()}", text)
        try:
            made = Settings()
        except InvalidSettings:
            return
    kind, least, most = NUMBERS[name]
    value = getattr(made, name)
    assert type(value) is kind
    assert least <= value <= most
    assert made.recent_limit <= made.threshold
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
def test_an_invalid_value_removes_nothing_because_no_process_starts(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(f"REDISMEM_{name.upper()}", text)
    for connect in (Memory.connect, BlockingMemory.connect):
        with pytest.raises(InvalidSettings, match=f"REDISMEM_{name.upper()} is invalid"):
            connect("memory://")


def test_an_unknown_variable_is_warned_of_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("REDISMEM_MAX_SESSION", "REDISMEM_TRESHOLD", "REDISMEM_QQQQQQ", "REDISMEM_BENCH_URL", "OTHER_THING"):
        monkeypatch.setenv(name, "1")
    assert Settings() == DEFAULTS
    assert warnings_of(caplog) == [
        "REDISMEM_MAX_SESSION is not a setting (did you mean REDISMEM_MAX_SESSIONS?)",
        "REDISMEM_QQQQQQ is not a setting",
        "REDISMEM_TRESHOLD is not a setting (did you mean REDISMEM_THRESHOLD?)",
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

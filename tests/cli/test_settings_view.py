"""`redismem list settings` lists every setting with its value and source, but no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redismem import Settings


@pytest.fixture
def list_settings(command: Any) -> Any:
    """Return a function that lists the rows by the setting's name."""

    def settings() -> dict[str, Any]:
        ran = command("list", "settings", "--json")
        assert ran.code == 0
        return {row["name"]: row for row in ran.document["settings"]}

    return settings


def test_every_setting_is_there_with_variable_value_source_and_meaning(
    list_settings: Any, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISMEM_SHARDS", "16")
    rows, out = list_settings(), command("list", "settings").out
    assert list(rows) == list(Settings.model_fields)
    for name, row in rows.items():
        assert row["variable"] == f"REDISMEM_{name.upper()}"
        assert row["variable"] in out
        assert row["meaning"] == Settings.model_fields[name].description
    assert (rows["shards"]["value"], rows["shards"]["source"]) == (16, "environment")
    assert (rows["threshold"]["value"], rows["threshold"]["source"]) == (10, "default")
    assert "REDISMEM_SHARDS = 16  (environment)" in out
    assert "seconds without activity" in rows["idle_timeout_s"]["meaning"]


def test_the_source_of_a_derived_value_is_named(list_settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_THRESHOLD", "5")
    rows = list_settings()
    assert (rows["recent_limit"]["value"], rows["recent_limit"]["source"]) == (3, "derived from another setting")


@pytest.mark.parametrize("words", [("list", "settings"), ("doctor",), ("list",), ("worker", "--once"), ("serve",)])
def test_an_invalid_variable_ends_every_command_at_its_start(
    command: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "canary")
    monkeypatch.setenv("REDISMEM_TICK_S", "canary")
    ran = command(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "REDISMEM_MAX_SESSIONS is invalid (" in ran.err
    assert "REDISMEM_TICK_S is invalid (" in ran.err
    assert "canary" not in ran.err


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:canary@redis.example:6379/0?client_name=canary", "redis://redis.example:6379/0"),
        ("redis://:canary/canary@redis.example", "the given URL"),
        ("canary", "the given URL"),
    ],
)
def test_no_secret_is_shown(
    list_settings: Any, command: Any, monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    assert list_settings()["model_api_key"]["value"] == "not set"
    monkeypatch.setenv("REDISMEM_URL", url)
    monkeypatch.setenv("REDISMEM_MODEL_API_KEY", "canary")
    monkeypatch.setenv("REDISMEM_MODEL_BASE_URL", "https://canary:canary@model.example/v1?key=canary")
    rows = list_settings()
    assert (rows["url"]["value"], rows["model_api_key"]["value"]) == (shown, "set")
    assert rows["model_base_url"]["value"] == "https://model.example/v1"
    ran = command("list", "settings")
    assert "canary" not in json.dumps(rows) + ran.out + ran.err

"""Each extra alone: what works does, and what needs more says which extra, and a package that is too old is named."""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from pathlib import Path

import pytest
from support.environments import APART, ROOT, visit_all, visit_linked
from support.redis_server import RedisServer

from redismem.settings.extras import MissingExtra, from_extra, require_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - {"peers"})


@pytest.mark.timeout(600)  # it imports every command and route
@pytest.mark.parametrize(
    "extra", ["", *(pytest.param(extra, marks=pytest.mark.nightly) for extra in EXTRAS if extra not in APART)]
)
def test_everything_works_or_names_the_extra_that_it_needs(
    redis_server: RedisServer, tmp_path: Path, extra: str
) -> None:
    visited = visit_linked(tmp_path, {extra} - {""}, redis_server.url)
    assert visited["failed"] == {}
    assert visited["refused"] == visited["expected"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("extra", APART)
def test_everything_works_apart(redis_server: RedisServer, tmp_path: Path, extra: str) -> None:
    pytest.importorskip(extra)
    visited = visit_all([sys.executable], tmp_path, redis_server.url, COLUMNS="500")
    assert visited["failed"] == {}
    assert visited["refused"] == visited["expected"]


@pytest.mark.parametrize(
    ("installed", "is_new_enough"),
    [("1.9.9", False), ("1.10", True), ("1.10.0", True), ("1.10.0rc1", True), ("2", True), ("1.9.20.post1", False)],
)
def test_a_package_that_is_too_old_is_named_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, installed: str, is_new_enough: bool
) -> None:
    asked = ["httpx>=0.27", "lore-core<2,>=1.10.0; extra == 'lore'", "other>=9; extra == 'other'"]
    monkeypatch.setattr("redismem.settings.extras.requires", lambda name: asked)
    monkeypatch.setattr("redismem.settings.extras.version", {"lore-core": installed}.__getitem__)
    if is_new_enough:
        require_extra("lore", "the adapter")
        return
    with pytest.raises(MissingExtra) as told, from_extra("lore", "redismem.adapters.lore"):
        pytest.fail("it was imported")
    expected = f"redismem.adapters.lore needs lore-core 1.10.0 or newer, and {installed} is installed"
    assert str(told.value) == f"{expected}: pip install 'redismem[lore]'"


def test_every_package_of_an_extra_has_its_floor_in_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A requirement that the check cannot read would never be too old."""
    monkeypatch.setattr("redismem.settings.extras.version", lambda name: "0")
    for extra in set(EXTRAS) - {"fast"}:  # only makes things faster
        with pytest.raises(MissingExtra, match="or newer, and 0 is installed"):
            require_extra(extra, "this")


def test_a_copy_without_metadata_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("redismem.settings.extras.requires", fail)
    require_extra("server", "this")

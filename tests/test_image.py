"""The image and the compose file, as far as they can be looked at without an engine that builds and runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from redismem.cli.app import app

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: Any = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
STAGES = re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]


def test_it_is_slim_and_runs_as_nobody_in_particular() -> None:
    build, run = STAGES
    assert all(re.match(r"FROM python:3\.\d+-slim\b", stage) for stage in (build, run))
    assert re.search(r"^USER 10001$", run, re.MULTILINE)
    assert "pip" not in run.split("HEALTHCHECK")[0].replace("/opt/service", "")
    assert "--require-hashes" in build


def test_it_says_whether_it_is_well() -> None:
    assert "HEALTHCHECK" in STAGES[-1]
    assert "/readyz" in STAGES[-1]


def test_what_it_copies_is_there_and_let_through() -> None:
    wanted = [words[1:-1] for line in STAGES[0].splitlines() if (words := line.split()) and words[0] == "COPY"]
    passed = set((ROOT / ".dockerignore").read_text().splitlines())
    for name in (name for names in wanted for name in names):
        assert (ROOT / name).exists(), name
        assert f"!{name}" in passed


def test_it_starts_what_there_is() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", STAGES[-1], re.MULTILINE)
    app.parse_args(yaml.safe_load(command), exit_on_error=False, print_error=False)
    for service in ("server", "worker"):
        words = COMPOSE["services"][service].get("command", yaml.safe_load(command))
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_compose_runs_redis_the_server_and_two_workers() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"redis", "server", "worker"}
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["server"]["depends_on"]["redis"]["condition"] == "service_healthy"
    assert services["server"]["read_only"] is True
    assert services["server"]["cap_drop"] == ["ALL"]
    # Nothing is open to others than this machine.
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", ["server", "worker"])
def test_both_find_the_same_redis(name: str) -> None:
    environment = COMPOSE["services"][name]["environment"]
    assert environment["REDISMEM_URL"] == "redis://redis:6379/0"

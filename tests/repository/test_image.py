"""The image and the compose file, as far as they can be looked at without an engine that builds and runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.redis_server import RedisServer, free_port

from redismem import Settings
from redismem.cli.app import app
from redismem.cli.serving import ServeOptions
from redismem.cli.worker import WorkerOptions

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: Any = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
STAGES = re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]


def test_it_is_slim_and_runs_as_nobody_in_particular() -> None:
    build, run = STAGES
    assert all(re.match(r"FROM python:3\.\d+-slim\b", stage) for stage in (build, run))
    assert re.search(r"^USER 10001$", run, re.MULTILINE)
    assert "pip" not in run.split("HEALTHCHECK")[0].replace("/opt/service", "")
    assert "--require-hashes --no-deps" in build


def test_an_outage_of_redis_makes_no_container_unhealthy() -> None:
    assert re.findall(r"^HEALTHCHECK .*\n.*127\.0\.0\.1:8080(/\w+)'", STAGES[-1], re.MULTILINE) == ["/livez"]


@pytest.mark.parametrize(("name", "waits_count"), [("server", 2), ("worker", 1)])
def test_there_is_time_to_end(name: str, waits_count: int) -> None:
    """A server waits for its chats, then as long for its other requests; what is in hand is stored or given back."""
    stop_s = {"server": ServeOptions().stop_s, "worker": WorkerOptions().stop_s}[name]
    given_s = int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s"))
    assert given_s >= waits_count * stop_s + 2 * Settings.model_fields["deadline_s"].default


def test_it_has_what_the_settings_ask_for() -> None:
    """A server and a worker that make vectors need numpy: REDISMEM_EMBED."""
    assert '[server,embeddings]"' in STAGES[0]


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


def test_compose_restarts_its_services_and_passes_models_on() -> None:
    for service in ("redis", "server", "worker"):
        assert COMPOSE["services"][service]["restart"] == "unless-stopped"
    known = {f"REDISMEM_{name.upper()}" for name in Settings.model_fields} | {"REDISMEM_SERVER_KEYS"}
    for service in ("server", "worker"):
        environment = COMPOSE["services"][service]["environment"]
        assert environment.keys() <= known
        assert environment.keys() >= {
            "REDISMEM_MODEL_PROVIDER",
            "REDISMEM_MODEL",
            "REDISMEM_MODEL_API_KEY",
            "REDISMEM_KEEP_ORIGINALS",
        }
        assert environment["REDISMEM_MODEL"] is None, "unset stays unset"
    assert COMPOSE["services"]["worker"]["environment"]["REDISMEM_NAMESPACE"] == "${REDISMEM_NAMESPACES:-default}"


def services_in_profile(name: str | None) -> set[str]:
    wanted = [] if name is None else [name]
    return {service for service, said in COMPOSE["services"].items() if said.get("profiles", []) == wanted}


def options_of(service: str) -> dict[str, str]:
    _, *words = COMPOSE["services"][service]["command"]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_compose_has_a_cluster_of_three_primaries_and_three_replicas() -> None:
    nodes = {f"cluster-{number}" for number in range(1, 7)}
    assert services_in_profile("cluster") == nodes | {"cluster"}
    addresses = {COMPOSE["services"][node]["networks"]["cluster"]["ipv4_address"] for node in nodes}
    maker = COMPOSE["services"]["cluster"]
    assert set(maker["depends_on"]) == nodes
    assert set(re.findall(r"(172[.\d]+):6379", maker["command"][-1])) == addresses
    assert "--cluster-replicas 1" in maker["command"][-1]
    assert COMPOSE["networks"]["cluster"]["ipam"]["config"] == [{"subnet": "172.30.28.0/24"}]
    assert len(addresses) == 6
    for node in nodes:
        assert options_of(node)["--cluster-enabled"] == "yes"
        assert options_of(node)["--cluster-require-full-coverage"] == "no"
        # A replica takes over before a call is given up.
        assert int(options_of(node)["--cluster-node-timeout"]) < 1000 * Settings.model_fields["deadline_s"].default
        check_options(options_of(node))


def test_compose_has_a_primary_two_replicas_and_three_sentinels() -> None:
    replicas = {f"sentinel-replica-{number}" for number in (1, 2)}
    sentinels = {f"sentinel-{number}" for number in (1, 2, 3)}
    assert services_in_profile("sentinel") == {"sentinel-primary"} | replicas | sentinels
    for replica in replicas:
        assert options_of(replica)["--replicaof"] == "sentinel-primary 6379"
        check_options(options_of(replica))
    check_options(options_of("sentinel-primary"))
    for sentinel in sentinels:
        assert "monitor redismem sentinel-primary 6379 2\n" in COMPOSE["services"][sentinel]["command"][-1]


def check_options(options: dict[str, str]) -> None:
    """Servers follow the doctor: acknowledged writes last, and an isolated primary soon refuses writes."""
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--min-replicas-to-write"], options["--min-replicas-max-lag"]) == ("1", "2")


def test_a_real_server_takes_the_options(tmp_path: Path) -> None:
    """Each node that compose starts is given options: a misspelt one would end it."""
    for service in ("redis", "cluster-1", "sentinel-primary"):
        said = {name: word for name, word in options_of(service).items() if "replica-announce" not in name}
        if "--cluster-enabled" in said:
            said |= {"--cluster-port": str(free_port())}  # else it is 10,000 above the other, and may be somebody's
        server = RedisServer(tmp_path / service, options=tuple(part for each in said.items() for part in each))
        try:
            server.start()
        finally:
            server.stop()


def test_compose_runs_redis_the_server_and_two_workers() -> None:
    services = COMPOSE["services"]
    assert services_in_profile(None) == {"redis", "server", "worker"}
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

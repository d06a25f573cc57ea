"""The manifests of docs/howto/kubernetes.md, as far as they can be looked at without a cluster that runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from redismem import Settings
from redismem.cli.app import app
from redismem.web.api import operations

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "howto" / "kubernetes.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MANIFESTS: list[Any] = [found for block in BLOCKS for found in yaml.safe_load_all(block)]


def manifests_of_kind(kind: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in MANIFESTS if each["kind"] == kind}


DEPLOYMENTS = manifests_of_kind("Deployment")


def pod(name: str) -> tuple[Any, Any]:
    spec = DEPLOYMENTS[name]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


@pytest.mark.parametrize("name", ["redismem", "redismem-worker"])
def test_it_starts_what_there_is_and_ends_it_in_time(name: str) -> None:
    spec, container = pod(name)
    args = container["args"]
    app.parse_args(args, exit_on_error=False, print_error=False)
    stop_s = float(args[args.index("--stop-s") + 1])
    waits_s = float(container.get("lifecycle", {}).get("preStop", {"exec": {"command": [0]}})["exec"]["command"][-1])
    # A server waits for its chats, and then as long for its other requests; what is in hand is stored or given back.
    waits_s += (2 if args[0] == "serve" else 1) * stop_s + 2 * Settings.model_fields["deadline_s"].default
    assert spec["terminationGracePeriodSeconds"] > waits_s
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_probes_ask_what_there_is() -> None:
    _, container = pod("redismem")
    routes = {route.path for route in operations.router.routes if hasattr(route, "path")}
    asked = {container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")}
    assert asked == {"/readyz", "/livez"} <= routes
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez", "an outage of Redis restarts nobody"
    ports = {port["name"] for port in container["ports"]}
    assert container["readinessProbe"]["httpGet"]["port"] in ports
    _, worker = pod("redismem-worker")
    assert worker["livenessProbe"]["httpGet"] == {"path": "/livez", "port": worker["ports"][0]["name"]}
    assert str(worker["ports"][0]["containerPort"]) in worker["args"]


def test_each_deployment_is_selected_and_kept_from_going_all_at_once() -> None:
    budgets = manifests_of_kind("PodDisruptionBudget")
    assert budgets.keys() == DEPLOYMENTS.keys()
    for name, deployment in DEPLOYMENTS.items():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        assert budgets[name]["spec"]["selector"]["matchLabels"] == labels
        assert budgets[name]["spec"]["maxUnavailable"] < deployment["spec"]["replicas"]
    service = manifests_of_kind("Service")["redismem"]["spec"]
    assert service["selector"] == DEPLOYMENTS["redismem"]["spec"]["template"]["metadata"]["labels"]


def test_each_pod_is_scraped_by_itself_under_the_job_that_the_alerts_name() -> None:
    services, monitors = manifests_of_kind("Service"), manifests_of_kind("ServiceMonitor")
    assert services.keys() == monitors.keys() == DEPLOYMENTS.keys(), "a job has the name of its Service"
    for name, monitor in monitors.items():
        (endpoint,) = monitor["spec"]["endpoints"]
        assert monitor["spec"]["selector"]["matchLabels"] == services[name]["metadata"]["labels"]
        (port,) = services[name]["spec"]["ports"]
        _, container = pod(name)
        assert endpoint["port"] == port["name"]
        assert port["targetPort"] in {each["name"] for each in container["ports"]}
        labels = DEPLOYMENTS[name]["spec"]["template"]["metadata"]["labels"]
        assert services[name]["spec"]["selector"] == labels
    assert services["redismem-worker"]["spec"]["clusterIP"] == "None"
    assert "authorization" in monitors["redismem"]["spec"]["endpoints"][0], "/metrics of a server needs a key"
    assert 'up{job="redismem-worker"}' in (DOCS / "alerts.yml").read_text()


def test_what_is_secret_is_a_setting_and_stands_in_the_secret() -> None:
    (secret,) = manifests_of_kind("Secret").values()
    known = {f"REDISMEM_{name.upper()}" for name in Settings.model_fields} | {"REDISMEM_SERVER_KEYS"}
    assert set(secret["stringData"]) <= known
    for name in DEPLOYMENTS:
        _, container = pod(name)
        assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]

"""Measure a turn in clusters of one and three nodes, and with a replica that confirms, against a single node.

For comparison, this process also spreads sessions over three nodes without a cluster. The difference between the
cluster and these nodes is the cost of the cluster; the difference between these nodes and one node is the machine's.

The turn is the turn of benchmarks.turns: `append_and_read(user)`, then `append(assistant)`, 160 bytes each, sessions of
8 turns. All servers are private and write no log. A cluster serves as many concurrent sessions as the single node, then
three times as many, so that each node has as many as the single one. The single node and the cluster alternate in
rounds, in a new order in each round; a primary with and without a confirming replica (`confirm=1`) does, too. Ratios
are medians of the ratios per round.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from benchmarks.measuring import Server, own_server, surroundings, table
from benchmarks.running import collect_garbage, load, options, ratio, run, show_results, verdict
from benchmarks.turns import Redismem, drive, measured

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.cluster_servers import SLOTS_COUNT, ClusterNode, ClusterServers
from support.redis_server import RedisServer, say
from support.waiting import wait_until

CONCURRENCY, NODES = 64, 3
NO_LOG = ("--appendonly", "no")
MOST_SERVER_RATIO, MOST_CLIENT_RATIO, FEWEST_CONFIRMED_RATIO = 1.15, 1.25, 0.4
FIGURES = ("turns_per_s", "client_us", "server_us", "reads")


class Servers:
    """The counters of several servers as one sum."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._each = [Server(url) for url in urls]

    def cpu_s(self) -> float:
        return sum(server.cpu_s() for server in self._each)

    def reads_count(self) -> int:
        return sum(server.reads_count() for server in self._each)

    def idle_cpu(self) -> float:
        return sum(server.idle_cpu() for server in self._each)


class Side(NamedTuple):
    """The servers of a side, and its number of concurrent sessions. Several URLs share the sessions."""

    label: str
    urls: Sequence[str]
    servers: Servers
    concurrency: int = CONCURRENCY
    confirm: int = 0


class Spread:
    """Turns in several stores, each session in one of them."""

    def __init__(self, side: Side) -> None:
        self.label = side.label
        self._each = [Redismem(url, "nodes", side.concurrency, confirm=side.confirm) for url in side.urls]
        self.name = self._each[0].name

    async def turn(self, session: str) -> None:
        await self._each[crc32(session.encode()) % len(self._each)].turn(session)

    async def aclose(self) -> None:
        for each in self._each:
            await each.aclose()


@contextlib.contextmanager
def one_node() -> Iterator[str]:
    with own_server() as server:
        yield server.url


@contextlib.contextmanager
def cluster_of_one(folder: Path) -> Iterator[str]:
    node = ClusterNode(folder, more=NO_LOG)
    try:
        node.start()
        node.say("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS_COUNT - 1)
        wait_until(lambda: node.facts()["cluster_state"] == "ok", "that it serves all slots")
        yield node.place
    finally:
        node.stop()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[ClusterServers]:
    servers = ClusterServers(folder, replicas=False, more=NO_LOG)
    try:
        yield servers.start()
    finally:
        servers.stop()


@contextlib.contextmanager
def with_replica(folder: Path) -> Iterator[tuple[str, str]]:
    """Start a primary and its replica, and return their URLs once the replica is in sync."""
    primary = RedisServer(folder / "primary").start()
    replica = RedisServer(folder / "replica", options=("--replicaof", f"127.0.0.1 {primary.port}"))
    try:
        replica.start()
        wait_until(lambda: say(replica.port, "ROLE")[3] == b"connected", "that the replica has all")
        yield primary.url, replica.url
    finally:
        replica.stop()
        primary.stop()


async def compare(sides: Sequence[Side], rounds: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Return the figures of every round, by the label of the side."""
    found: dict[str, list[dict[str, float]]] = {side.label: [] for side in sides}
    idle = {side.label: side.servers.idle_cpu() for side in sides}
    made = [Spread(side) for side in sides]
    for number in range(-1, rounds):
        for at in random.sample(range(len(sides)), len(sides)):
            side = sides[at]
            collect_garbage()
            turns = drive(made[at], side.concurrency, seconds if number >= 0 else seconds / 4, f"{number + 1}")
            figures = await measured(side.servers, idle[side.label], turns)
            if number >= 0:
                found[side.label].append(figures)
    for each in made:
        await each.aclose()
    return found


def ratios(found: dict[str, list[dict[str, float]]], side: str, other: str) -> dict[str, float]:
    return {
        figure: ratio([row[figure] for row in found[side]], [row[figure] for row in found[other]]) for figure in FIGURES
    }


def report(found: dict[str, list[dict[str, float]]], pairs: Sequence[tuple[str, str]]) -> str:
    rows: list[list[object]] = [
        [label, *(statistics.median(row[figure] for row in figures) for figure in FIGURES)]
        for label, figures in found.items()
    ]
    for side, other in pairs:
        each = ratios(found, side, other)
        rows.append([f"{side} / {other}", *(f"x {each[figure]:.2f}" for figure in FIGURES)])
    return table(("", "turns/s", "client CPU µs", "server CPU µs", "round trips"), rows)


async def measure(folder: Path, rounds: int, seconds: float) -> tuple[dict[str, Any], str, dict[str, str]]:
    """Return the figures, the report, and the facts about the machine."""
    with contextlib.ExitStack() as started:
        url, *apart = [started.enter_context(one_node()) for _ in range(1 + NODES)]
        place = started.enter_context(cluster_of_one(folder / "one"))
        servers = started.enter_context(cluster(folder / "cluster"))
        around = surroundings(Server(url), "benchmarks.nodes")
        nodes = Servers([f"redis://{node.place}/0" for node in servers.nodes])
        sides = [
            Side("one node", [url], Servers([url])),
            Side("cluster of one", [f"redis+cluster://{place}"], Servers([f"redis://{place}/0"])),
            Side("three nodes, no cluster", apart, Servers(apart)),
            Side("cluster of three", [servers.url], nodes),
            Side(f"the same, {CONCURRENCY} a node", [servers.url], nodes, CONCURRENCY * NODES),
        ]
        spread = await compare(sides, rounds, seconds)
    alone, _, no_cluster, same, _ = labels = list(spread)
    with with_replica(folder / "pair") as (primary, replica):
        pair = Servers([primary, replica])
        both = [Side("not confirmed", [primary], pair), Side("confirm=1", [primary], pair, confirm=1)]
        confirmed = await compare(both, rounds, seconds)
    bounds = ratios(spread, same, alone)
    paced = ratios(confirmed, "confirm=1", "not confirmed")
    parts = [
        report(spread, [*((label, alone) for label in labels[1:]), (same, no_cluster)]),
        report(confirmed, [("confirm=1", "not confirmed")]),
        "\n".join(
            [
                verdict(
                    "server CPU of a turn in a cluster of three", bounds["server_us"], MOST_SERVER_RATIO, at_most=True
                ),
                verdict(
                    "client CPU of a turn in a cluster of three", bounds["client_us"], MOST_CLIENT_RATIO, at_most=True
                ),
                verdict("turns/s with confirm=1", paced["turns_per_s"], FEWEST_CONFIRMED_RATIO, at_most=False),
            ]
        ),
    ]
    return {"spread": spread, "confirmed": confirmed}, "\n\n".join(parts), around


def main() -> None:
    asked = options("benchmarks.nodes", __doc__ or "", rounds=11).parse_args()
    rounds, seconds = (1, 0.2) if asked.quick else (asked.rounds, 1.0)
    before = load()
    with tempfile.TemporaryDirectory(prefix="redismem-bench-") as folder:
        found, printed, around = run(measure(Path(folder), rounds, seconds))
    around["load"] = f"before {before}, after {load()}"
    show_results(around, found, printed, asked.json)


if __name__ == "__main__":
    main()

"""Measure the longest time without an answer from a shard while its slot moves, by its number of sessions.

A private cluster of three primaries with AOF holds sessions of one shard, with ten messages each. The slot moves to
another node like in `redis-cli --cluster reshard`: SETSLOT, then GETKEYSINSLOT and MIGRATE in batches, then SETSLOT at
every node. Meanwhile sequential appends go to sessions of that shard, of another shard on the source node, and of a
shard on the third node. The report shows the longest time without an answer for each, and the longest of all in the
second before the move.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any, NamedTuple

import redis

from benchmarks.measuring import Server, surroundings, table
from benchmarks.running import load, options, over_lane, run, show_results
from redismem import Memory, Settings
from redismem.transport.nodes.slots import slot_of

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.cluster_servers import ClusterNode, ClusterServers  # they lie beside the tests' own

MESSAGE = {"role": "user", "content": "u" * 160}
MESSAGES_COUNT = 10
BATCHES = (10, 100)
SHARDS_COUNT = 12
WRITERS = 64
PROBED_COUNT = 200
PAUSE_S = 0.002
DEADLINE_S = 120
# A probe never gives up a call, since its waiting time is the figure.
SETTINGS = Settings(shards=SHARDS_COUNT, deadline_s=DEADLINE_S)


class Scene(NamedTuple):
    """The shard that moves, two shards that stay, and their nodes."""

    moved: int
    beside: int
    elsewhere: int
    source: ClusterNode
    target: ClusterNode


class Probe:
    """A probe that appends sequentially until it is stopped, and records the time of each answer."""

    def __init__(self, memory: Memory, names: list[str]) -> None:
        self._memory = memory
        self._names = names
        self.answered_s = [time.perf_counter()]
        self.is_over = False

    async def go(self) -> None:
        for name in cycle(self._names):
            await self._memory.session(name).append(MESSAGE)
            self.answered_s.append(time.perf_counter())
            if self.is_over:
                return
            await asyncio.sleep(PAUSE_S)

    def longest_s(self, begun_s: float, ended_s: float) -> float:
        """Return the longest time between two answers that overlaps the interval."""
        pairs = zip(self.answered_s, self.answered_s[1:], strict=False)
        return max(after - before for before, after in pairs if after > begun_s and before < ended_s)


def names_of(memory: Memory, shard: int) -> Iterator[str]:
    """Return session ids of a shard."""
    number = 0
    while True:
        name, number = f"s-{number}", number + 1
        if memory.store.keys.shard_of(name) == shard:
            yield name


def scene_of(memory: Memory, servers: ClusterServers) -> Scene:
    owners = servers.topology().owners
    by_place: dict[str, list[int]] = {}
    for number, shard in enumerate(memory.store.keys.shards()):
        by_place.setdefault(owners[slot_of(shard.active)], []).append(number)
    source, target, third = (servers.node_at(place) for place in by_place)
    moved, beside = by_place[source.place][:2]
    return Scene(moved, beside, by_place[third.place][0], source, target)


async def fill(memory: Memory, names: list[str]) -> None:
    async def append(first: int) -> None:
        for name in islice(names, first, None, WRITERS):
            await memory.session(name).append(*[MESSAGE] * MESSAGES_COUNT)

    await asyncio.gather(*(append(first) for first in range(WRITERS)))


def move(servers: ClusterServers, scene: Scene, slot: int, batch_count: int) -> int:
    """Move the slot to the target over open connections, like redis-cli, and return the number of its keys."""
    moved_count = 0
    servers.begin_move(slot, scene.source, scene.target)
    with redis.Redis(port=scene.source.port, socket_timeout=DEADLINE_S) as source:
        while keys := source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, batch_count):
            source.execute_command("MIGRATE", "127.0.0.1", scene.target.port, "", 0, 60_000, "KEYS", *keys)
            moved_count += len(keys)
    servers.end_move(slot, scene.target)
    return moved_count


async def measured(servers: ClusterServers, namespace: str, sessions_count: int, batch_count: int) -> dict[str, Any]:
    """Return the duration of the move, and the longest time without an answer of each probe."""
    async with over_lane(servers.url, namespace, SETTINGS) as memory:
        scene = await asyncio.to_thread(scene_of, memory, servers)
        names = list(islice(names_of(memory, scene.moved), sessions_count))
        await fill(memory, names)
        slot = slot_of(memory.store.keys.shards()[scene.moved].active)
        probes = {"moved": Probe(memory, names[:: max(1, sessions_count // PROBED_COUNT)])}
        for what, shard in (("beside", scene.beside), ("elsewhere", scene.elsewhere)):
            probes[what] = Probe(memory, list(islice(names_of(memory, shard), PROBED_COUNT)))
        going = [asyncio.ensure_future(probe.go()) for probe in probes.values()]
        since_s = time.perf_counter()
        await asyncio.sleep(1)
        begun_s = time.perf_counter()
        keys_count = await asyncio.to_thread(move, servers, scene, slot, batch_count)
        ended_s = time.perf_counter()
        for probe in probes.values():
            probe.is_over = True
        await asyncio.gather(*going)
        still_s = {what: probe.longest_s(begun_s, ended_s) for what, probe in probes.items()}
        before_s = max(probe.longest_s(since_s, begun_s) for probe in probes.values())
        for shard in (scene.moved, scene.beside, scene.elsewhere):
            await _removed(servers, memory, shard)
    found = {"sessions": sessions_count, "batch": batch_count, "keys": keys_count, "move_s": ended_s - begun_s}
    return found | {"without_an_answer_s": still_s, "before_s": before_s}


async def _removed(servers: ClusterServers, memory: Memory, shard: int) -> None:
    """Remove the keys of a shard, so that the next run starts with an empty one."""
    slot = slot_of(memory.store.keys.shards()[shard].active)
    owner = await asyncio.to_thread(servers.owner, slot)
    with redis.Redis(port=owner.port) as client:
        while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1_000):
            client.unlink(*keys)


def report(rows: list[dict[str, Any]]) -> str:
    head = ("sessions", "keys per batch", "keys", "move s", "its shard s", "same node s", "third node s", "before s")
    shown = []
    for row in rows:
        still = row["without_an_answer_s"]
        figures = (row["move_s"], still["moved"], still["beside"], still["elsewhere"], row["before_s"])
        counts = (f"{row['sessions']:,}", row["batch"], f"{row['keys']:,}")
        shown.append((*counts, *(f"{figure:.2f}" for figure in figures)))
    most = max(row["sessions"] for row in rows)
    paces = [
        f"{row['sessions'] / row['move_s']:,.0f} sessions per second with {row['batch']} keys per batch"
        for row in rows
        if row["sessions"] == most
    ]
    return "\n".join([table(head, shown), "", f"of {most:,}: {', '.join(paces)}"])


async def measure(servers: ClusterServers, counts: list[int], rounds: int) -> list[dict[str, Any]]:
    runs = product(counts, BATCHES, range(rounds))
    return [await measured(servers, "-".join(map(str, ("migration", *one))), *one[:2]) for one in runs]


def parsed() -> argparse.Namespace:
    parser = options("benchmarks.migration", __doc__ or "", rounds=1)
    each = partial(parser.add_argument, "--sessions", type=int, nargs="+", metavar="N")
    each(default=[1_000, 10_000, 100_000], help="sessions of the shard that moves (1000 10000 100000)")
    return parser.parse_args()


def main() -> None:
    asked = parsed()
    before = load()
    with tempfile.TemporaryDirectory(prefix="redismem-bench-") as folder:
        servers = ClusterServers(Path(folder), replicas=False)
        try:
            servers.start()
            around = surroundings(Server(f"redis://{servers.nodes[0].place}/0"), "benchmarks.migration")
            rows = run(measure(servers, [100] if asked.quick else asked.sessions, asked.rounds))
        finally:
            servers.stop()
    around["load"] = f"before {before}, after {load()}"
    show_results(around, {"moves": rows}, report(rows), asked.json)


if __name__ == "__main__":
    main()

"""A Redis Cluster on loopback: three primaries with a replica each, as processes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from redismem.transport.nodes.slots import Topology
from support.redis_server import LOOPBACK, Host, RedisServer, free_port
from support.waiting import START_S, wait_until

PRIMARIES_COUNT = 3
SLOTS_COUNT = 16_384
_MEETING_TIMEOUT_MS = 1_000
_HANDING_OVER_S = 6  # the nodes give up a planned failover after 5 s
_VOTING_TIMEOUT_MS = 5_000  # nodes vote again after twice the node timeout; a replica asks again after four times
ON_DEMAND = ("--cluster-replica-no-failover", "yes")
"""A replica takes over on command only, not because the machine is busy."""


class ClusterNode(RedisServer):
    """A node of the cluster."""

    def __init__(self, folder: Path, *, more: tuple[str, ...] = (), host: Host = LOOPBACK) -> None:
        options = {
            "--cluster-enabled": "yes",
            "--cluster-port": str(free_port()),
            "--cluster-node-timeout": str(_MEETING_TIMEOUT_MS),
            "--cluster-require-full-coverage": "no",
            "--cluster-replica-validity-factor": "0",
            "--cluster-allow-replica-migration": "no",
            "--repl-diskless-sync-delay": "0",
            "--repl-ping-replica-period": "1",  # nodes do not announce a replica that has received nothing yet
        }
        self._bus_port = options["--cluster-port"]
        words = (word for pair in options.items() for word in pair)
        super().__init__(folder, aof=True, options=(*words, *more), host=host)

    def meet(self, other: ClusterNode) -> None:
        self.say("CLUSTER", "MEET", other.host.address, other.port, other._bus_port)

    @property
    def node_id(self) -> bytes:
        found: bytes = self.say("CLUSTER", "MYID")
        return found

    def facts(self) -> dict[str, str]:
        lines = self.say("CLUSTER", "INFO").decode().split()
        return dict(line.split(":", 1) for line in lines)


class ClusterServers:
    """The cluster. `nodes` are the first primaries, then their replicas in the same order."""

    def __init__(
        self,
        folder: Path,
        *,
        node_timeout_ms: int = 5_000,
        replicas: bool = True,
        more: tuple[str, ...] = (),
        tls: Mapping[str, Any] | None = None,
        hosts: Sequence[Host] = (),
    ) -> None:
        """`hosts` are the hosts of the nodes in order; further nodes are on the last host."""
        count = PRIMARIES_COUNT * (2 if replicas else 1)
        self._folder = folder
        self._made_count = 0
        self._has_replicas = replicas
        self._node_timeout_ms = node_timeout_ms
        places = [*hosts, *[hosts[-1] if hosts else LOOPBACK] * (count - len(hosts))]
        self.nodes = [ClusterNode(folder / f"node-{at}", more=more, host=host) for at, host in enumerate(places)]
        for node in self.nodes:
            node.tls = tls or {}

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(node.place for node in self.nodes[:PRIMARIES_COUNT])}"

    def start(self) -> ClusterServers:
        for number, node in enumerate(self.nodes):
            node.start()
            node.say("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        share = SLOTS_COUNT // PRIMARIES_COUNT + 1
        for number, node in enumerate(self.nodes[:PRIMARIES_COUNT]):
            first = number * share
            node.say("CLUSTER", "ADDSLOTSRANGE", first, min(first + share, SLOTS_COUNT) - 1)
        self._meet()
        for primary, replica in zip(self.nodes, self.nodes[PRIMARIES_COUNT:], strict=False):
            replica.say("CLUSTER", "REPLICATE", primary.node_id)
        self.until_well()
        self.set_timeout(self._node_timeout_ms)
        return self

    def _meet(self) -> None:
        """Introduce the nodes until each knows each. Nodes forget a slow node, so it repeats every 5 s."""
        told_s = 0.0

        def is_known() -> bool:
            nonlocal told_s
            if self._is_known(self.nodes):
                return True
            if time.monotonic() > told_s + 5:
                told_s = time.monotonic()
                for node in self.nodes[1:]:
                    self.nodes[0].meet(node)
            return False

        wait_until(is_known, "each node knows each", START_S)

    def set_timeout(self, node_timeout_ms: int) -> None:
        """Set the time after which a silent node counts as down. Half of it is the pace of introductions."""
        for node in self.nodes:
            node.say("CONFIG", "SET", "cluster-node-timeout", node_timeout_ms)

    def until_known(self, nodes: Iterable[ClusterNode]) -> None:
        wait_until(lambda: self._is_known(nodes), "each node knows each", START_S)

    def _is_known(self, nodes: Iterable[ClusterNode]) -> bool:
        count = str(len(self.nodes))
        return all(node.facts()["cluster_known_nodes"] == count for node in nodes)

    def until_well(self) -> None:
        """Wait until all nodes report every slot served and every replica connected."""
        wait_until(lambda: all(map(self._is_well, self.nodes)) and self._all_agree(), "all nodes are well", START_S)

    def _all_agree(self) -> bool:
        """True if all nodes name the same owner of each slot."""
        seen = [Topology.read(node.say("CLUSTER", "SLOTS"), node.place).owners for node in self.nodes]
        return all(owners == seen[0] for owners in seen)

    def _is_well(self, node: ClusterNode) -> bool:
        facts = node.facts()
        role = node.say("ROLE")
        in_step = role[0] == b"master" or role[3] == b"connected"
        slots = node.say("CLUSTER", "SLOTS")
        if not slots:  # a new node that knows no slots yet
            return False
        seen = Topology.read(slots, node.place)
        if self._has_replicas and len(seen.replicas) < PRIMARIES_COUNT:
            return False
        return in_step and facts["cluster_state"] == "ok" and facts["cluster_slots_ok"] == str(SLOTS_COUNT)

    def topology(self) -> Topology:
        """Return the topology that the first running node sees."""
        node = next(node for node in self.nodes if node.is_running)
        return Topology.read(node.say("CLUSTER", "SLOTS"), node.place)

    def node_at(self, place: str) -> ClusterNode:
        return next(node for node in self.nodes if node.place == place)

    def owner(self, slot: int) -> ClusterNode:
        return self.node_at(self.topology().owners[slot])

    def primaries(self) -> list[ClusterNode]:
        return [self.node_at(place) for place in self.topology().primaries]

    def new_node(self) -> ClusterNode:
        """Add an empty node without slots that all nodes know."""
        self._made_count += 1  # a new folder: nodes would reject the id of a forgotten node
        node = ClusterNode(self._folder / f"new-{self._made_count}")
        node.start()
        well = next(node for node in self.nodes if node.is_running)
        self.nodes.append(node)
        well.meet(node)
        self.until_known(self.nodes)
        self.until_well()
        self.set_timeout(self._node_timeout_ms)
        return node

    def forget(self, node: ClusterNode) -> None:
        """Remove a node without slots, and stop it."""
        gone = node.node_id
        self.nodes.remove(node)
        for other in self.nodes:
            other.say("CLUSTER", "FORGET", gone)
        node.stop()

    def begin_move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        target.say("CLUSTER", "SETSLOT", slot, "IMPORTING", source.node_id)
        source.say("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)

    def move_keys(self, slot: int, source: ClusterNode, target: ClusterNode, count: int = 1_000_000) -> int:
        """Move up to `count` keys of the slot, ten at a time as redis-cli does. Returns the number moved."""
        moved = 0
        while moved < count:
            keys = source.say("CLUSTER", "GETKEYSINSLOT", slot, min(10, count - moved))
            if not keys:
                break
            source.say("MIGRATE", target.host.address, target.port, "", 0, 10_000, "KEYS", *keys)
            moved += len(keys)
        return moved

    def end_move(self, slot: int, target: ClusterNode) -> None:
        node_id = target.node_id
        for node in (target, *(node for node in self.primaries() if node is not target)):
            node.say("CLUSTER", "SETSLOT", slot, "NODE", node_id)

    def move(self, slot: int, target: ClusterNode) -> None:
        """Move the whole slot."""
        source = self.owner(slot)
        self.begin_move(slot, source, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, target)
        # Replicas learn it from other nodes.
        wait_until(lambda: self.owner(slot) is target, "the slot has moved", START_S)

    def fail_over(self, lost: ClusterNode) -> None:
        """Promote a replica of a lost primary at once, without detection or a vote."""
        replica = self.node_at(self._replica_of(lost))
        replica.say("CLUSTER", "FAILOVER", "TAKEOVER")
        self.until_failed_over(lost)

    def hand_over(self, primary: ClusterNode) -> ClusterNode:
        """Promote the replica of a primary as before an upgrade, and return it once all nodes know.

        It repeats the command after 6 s, so no other replica may take over: see `ON_DEMAND`.
        """
        self.set_timeout(_VOTING_TIMEOUT_MS)
        replica = self.node_at(self._replica_of(primary))
        asked_s = 0.0

        def is_over() -> bool:
            nonlocal asked_s
            if replica.is_primary:
                return not primary.is_primary and self._all_agree()
            if time.monotonic() > asked_s + _HANDING_OVER_S:
                asked_s = time.monotonic()
                replica.say("CLUSTER", "FAILOVER")
            return False

        wait_until(is_over, "the planned failover", START_S)
        self.set_timeout(self._node_timeout_ms)
        return replica

    def _replica_of(self, lost: ClusterNode) -> str:
        witness = next(node for node in self.nodes if node.is_running)
        for shard in witness.say("CLUSTER", "SLOTS"):
            places = [f"{node[0].decode()}:{node[1]}" for node in shard[2:]]
            if places[0] == lost.place:
                return places[1]
        raise AssertionError(f"{lost.place} is not a primary with a replica")

    def until_failed_over(self, lost: ClusterNode) -> None:
        """Wait until other nodes serve the slots of a lost one."""

        def is_over() -> bool:
            topology = self.topology()
            return lost.place not in topology.primaries and "" not in topology.owners

        wait_until(is_over, "the failover", START_S)

    def bring_back(self, node: ClusterNode) -> None:
        """Start or resume a lost node, and wait until all nodes are well."""
        if node.is_stopped:
            node.go_on()
        else:
            node.start()
        self.set_timeout(self._node_timeout_ms)  # the node started with the timeout of the introduction
        self.until_well()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

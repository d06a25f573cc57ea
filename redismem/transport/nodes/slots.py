"""Which node of a cluster has which slot, and where a redirection points. No I/O; redis-py reads CLUSTER SLOTS.

A node is named by its place: host and port, as in `127.0.0.1:7000` or `[::1]:7000`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from redis.cluster import parse_cluster_slots
from redis.crc import key_slot

from redismem.protocol.call import Command
from redismem.protocol.server_errors import ServerError
from redismem.transport.url import place_at

SLOTS_COUNT = 16_384
_REMEMBERED_COUNT = 8_192
_KEYS_COUNT_AT = 2  # of EVALSHA: its hash, the number of keys, the keys
# Commands without a key; all others have it behind their name.
_WITHOUT_A_KEY = frozenset(
    ["PING", "TIME", "ECHO", "SCAN", "SCRIPT", "INFO", "CONFIG", "CLUSTER", "CLIENT", "ACL", "ROLE", "DBSIZE", "WAIT"]
)
# The number of nodes that a cursor of all of them has room for.
_NODES_LIMIT = 1_024


def key_of(command: Command) -> bytes | str | int | None:
    """The first key of a command; None if it has none."""
    name = command[0]
    if name == "EVALSHA":
        return command[_KEYS_COUNT_AT + 1] if command[_KEYS_COUNT_AT] else None
    if name in _WITHOUT_A_KEY or len(command) == 1:
        return None
    return command[2] if name == "MEMORY" else command[1]


@lru_cache(maxsize=_REMEMBERED_COUNT)
def slot_of(key: bytes | str | int) -> int:
    """The slot of a key: that of its hash tag, if it has one."""
    return key_slot(key if type(key) is bytes else str(key).encode())


@dataclass(slots=True)
class Topology:
    """The cluster as one of its nodes sees it. What a redirection says is put right in it at once."""

    owners: list[str]
    """The place of the primary of each slot; "" for a slot that nobody has."""
    primaries: tuple[str, ...]
    """The places of the primaries, in the order of their first slots."""
    replicas: tuple[str, ...]

    @classmethod
    def read(cls, answer: Any, asked: str) -> Topology:
        """Out of the answer that the node at this place gave to CLUSTER SLOTS.

        Raises ServerError for the answer of a node that knows of no slots: it is new, or was left alone.
        """
        owners = [""] * SLOTS_COUNT
        primaries: dict[str, None] = {}
        replicas: dict[str, None] = {}
        # A node that does not know its own host is where it was asked.
        shards = parse_cluster_slots(answer, current_host=apart(asked)[0])
        for (first, last), shard in sorted(shards.items()):
            primary = place_at(*shard["primary"])
            primaries[primary] = None
            owners[first : last + 1] = [primary] * (last + 1 - first)
            replicas |= dict.fromkeys(place_at(*replica) for replica in shard["replicas"])
        if not primaries:
            raise ServerError("CLUSTERDOWN", "CLUSTERDOWN a node that knows of no slots")
        return cls(owners, tuple(primaries), tuple(replicas))

    def move(self, slot: int, place: str) -> None:
        """A node has said that this one has the slot now."""
        self.owners[slot] = place
        if place not in self.primaries:
            self.primaries += (place,)


class Redirection(NamedTuple):
    """`MOVED`: the node at this place has the slot. `ASK`: it is about to have it, and has what is moved already."""

    slot: int
    place: str
    is_ask: bool


def redirection(refusal: ServerError, asked: str) -> Redirection | None:
    """Where a call that the node at `asked` has refused is to go instead; None for another refusal."""
    words = refusal.text.split(" ")
    if refusal.word not in ("MOVED", "ASK") or len(words) != 3:
        return None
    host, _, port = words[2].rpartition(":")
    if not words[1].isdecimal() or int(words[1]) >= SLOTS_COUNT or not port.isdecimal():
        return None
    return Redirection(int(words[1]), place_at(host or apart(asked)[0], int(port)), refusal.word == "ASK")


def is_down(refusal: ServerError) -> bool:
    """Whether a node says that it takes no calls since the cluster as a whole is down; not that a slot has no node."""
    return refusal.word == "CLUSTERDOWN" and "cluster is down" in refusal.text


def apart(place: str) -> tuple[str, int]:
    """The host and the port of a place."""
    host, _, port = place.rpartition(":")
    return host.strip("[]"), int(port)


def cursor_parts(cursor: int) -> tuple[int, int]:
    """A cursor over all nodes: the number of the node, and the cursor there."""
    return cursor % _NODES_LIMIT, cursor // _NODES_LIMIT


def cursor_behind(number: int, cursor: int, nodes_count: int) -> int:
    """The cursor over all nodes that goes on where a node's own ended; 0 if that was the last."""
    if cursor:
        return cursor * _NODES_LIMIT + number
    return number + 1 if number + 1 < nodes_count else 0

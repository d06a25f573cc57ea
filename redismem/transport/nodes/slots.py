"""The owner of each slot of a cluster, and redirections. No I/O. redis-py parses the reply to CLUSTER SLOTS.

A node is identified by its place: host and port, as in `127.0.0.1:7000` or `[::1]:7000`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from redis.cluster import parse_cluster_slots
from redis.crc import key_slot

from redismem.protocol.server_errors import ServerError
from redismem.transport.url import place_at

SLOTS_COUNT = 16_384
_REMEMBERED_COUNT = 8_192
# The largest number of nodes that a cursor over all nodes can encode.
_NODES_LIMIT = 1_024


@lru_cache(maxsize=_REMEMBERED_COUNT)
def slot_of(key: bytes | str | int) -> int:
    """Return the slot of a key. If the key has a hash tag, the slot depends only on the tag."""
    return key_slot(key if type(key) is bytes else str(key).encode())


@dataclass(slots=True)
class Topology:
    """The cluster as one of its nodes sees it. Redirections update it at once."""

    owners: list[str]
    """The place of the primary of each slot; "" for a slot without a node."""
    primaries: tuple[str, ...]
    """The places of the primaries, in the order of their first slots."""
    replicas: tuple[str, ...]

    @classmethod
    def read(cls, answer: Any, asked: str) -> Topology:
        """Parse the reply to CLUSTER SLOTS of the node at `asked`.

        Raises:
            ServerError: The node knows no slots, because the node is new or isolated.
        """
        owners = [""] * SLOTS_COUNT
        primaries: dict[str, None] = {}
        replicas: dict[str, None] = {}
        # If a node does not know its own host, the host that was asked is used.
        shards = parse_cluster_slots(answer, current_host=split_place(asked)[0])
        for (first, last), shard in sorted(shards.items()):
            primary = place_at(*shard["primary"])
            primaries[primary] = None
            owners[first : last + 1] = [primary] * (last + 1 - first)
            replicas |= dict.fromkeys(place_at(*replica) for replica in shard["replicas"])
        if not primaries:
            raise ServerError("CLUSTERDOWN", "CLUSTERDOWN a node that knows of no slots")
        return cls(owners, tuple(primaries), tuple(replicas))

    def move(self, slot: int, place: str) -> None:
        """Set the owner of a slot."""
        self.owners[slot] = place
        if place not in self.primaries:
            self.primaries += (place,)


class Redirection(NamedTuple):
    """A redirection. MOVED means that the node at this place owns the slot, ASK that it is importing the slot."""

    slot: int
    place: str
    is_ask: bool


def parse_redirection(refusal: ServerError, asked: str) -> Redirection | None:
    """Return the redirection in an error of the node at `asked`; `None` for any other error."""
    words = refusal.text.split(" ")
    if refusal.word not in ("MOVED", "ASK") or len(words) != 3:
        return None
    host, _, port = words[2].rpartition(":")
    if not words[1].isdecimal() or int(words[1]) >= SLOTS_COUNT or not port.isdecimal():
        return None
    return Redirection(int(words[1]), place_at(host or split_place(asked)[0], int(port)), refusal.word == "ASK")


def is_down(refusal: ServerError) -> bool:
    """True if the node rejects all calls because the cluster is down, not just one call because a slot has no node."""
    return refusal.word == "CLUSTERDOWN" and "cluster is down" in refusal.text


def split_place(place: str) -> tuple[str, int]:
    """Return the host and the port of a place."""
    host, _, port = place.rpartition(":")
    return host.strip("[]"), int(port)


def split_cursor(cursor: int) -> tuple[int, int]:
    """Split a cursor over all nodes into the node's number and its own cursor."""
    return cursor % _NODES_LIMIT, cursor // _NODES_LIMIT


def next_cursor(number: int, cursor: int, nodes_count: int) -> int:
    """Return the next cursor over all nodes; 0 after the last node."""
    if cursor:
        return cursor * _NODES_LIMIT + number
    return number + 1 if number + 1 < nodes_count else 0

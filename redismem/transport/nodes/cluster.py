"""A Redis Cluster. There is one lane per node, and each call goes to the node that owns its slot.

The transport follows redirections at once, within the call's timeout. Trouble with one node does not delay calls to
other nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from redismem.protocol.call import Command, Subject, key_of
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.base import MultiNode, Transport
from redismem.transport.loading import load_and_repeat
from redismem.transport.nodes.nodes import Nodes
from redismem.transport.nodes.seeds import Places
from redismem.transport.nodes.sides import Side
from redismem.transport.nodes.slots import Topology, next_cursor, parse_redirection, slot_of, split_cursor
from redismem.transport.replicas import Wanted
from redismem.transport.url import Address

# After this number of redirections the call fails, and the store retries it a little later.
_HOPS = 5
_TROUBLED_SHARE = 0.25


class Cluster:
    """A transport to all nodes of a cluster. Its `Side` decides if it is for asyncio or for blocking callers."""

    repeats = False

    def __init__(self, places: Places, side: Side, *, reply_timeout_s: float) -> None:
        self._side = side
        self._nodes = Nodes(places, side, reply_timeout_s)
        self._reply_timeout_s = reply_timeout_s
        self.blocks = side.blocks
        self.place = places.place

    @property
    def nodes(self) -> MultiNode:
        """This transport itself, whose nodes may fail one by one."""
        return self

    async def run(
        self,
        commands: Sequence[Command],
        timeout_s: float,
        script: Script | None = None,
        subject: Subject = None,
        wanted: Wanted | None = None,
    ) -> list[Any]:
        until = monotonic() + timeout_s
        nodes = self._nodes
        topology = nodes.topology or await nodes.get_topology(timeout_s)
        key = key_of(commands[0])
        if key is None:
            return await self._run_without_key(commands, topology, until)
        place = topology.owners[slot_of(key)]
        if not place:
            raise self._no_owner()
        lane: Any = nodes.lane(place)
        run = partial(lane.run, subject=subject) if wanted is None else partial(lane.run_confirmed, wanted=wanted)
        try:
            replies: list[Any] = await run(commands, timeout_s, script)
        except ServerError as refused:
            return await self._follow(refused, place, commands, until, script, subject=subject, wanted=wanted)
        except ConnectionLost as lost:
            raise nodes.note_lost(lost, place) from None
        if type(replies[0]) is ServerError:
            return await self._follow(replies[0], place, commands, until, script, replies, subject, wanted)
        return replies

    async def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> list[Any]:
        """Return the replies of `run`, followed by the number of the node's replicas that have the write."""
        return await self.run(commands, timeout_s, script, wanted=wanted)

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        if not commands:
            return []
        until = monotonic() + timeout_s
        topology = self._nodes.topology or await self._nodes.get_topology(timeout_s)
        parts: dict[str, list[int]] = {}
        for at, command in enumerate(commands):
            key = key_of(command)
            place = self._nodes.healthy_primary(topology) if key is None else topology.owners[slot_of(key)]
            parts.setdefault(place, []).append(at)
        works = [partial(self._run_part, place, [commands[at] for at in ats], until) for place, ats in parts.items()]
        outcomes = [await works[0]()] if len(works) == 1 else await self._side.run_all(works)
        replies: list[Any] = [None] * len(commands)
        for ats, outcome in zip(parts.values(), outcomes, strict=True):
            for number, at in enumerate(ats):
                replies[at] = outcome[number] if isinstance(outcome, list) else outcome
        if not any(isinstance(outcome, list) for outcome in outcomes):
            raise replies[0]
        return replies

    async def _run_part(self, place: str, commands: Sequence[Command], until: float) -> list[Any]:
        """Return one node's replies to its part of the independent commands."""
        if not place:
            raise self._no_owner()
        timeout_s = until - monotonic()
        # The other nodes' replies must not wait long for a node that just failed to answer.
        if self._nodes.is_troubled(place):
            timeout_s *= _TROUBLED_SHARE
        try:
            replies = await self._side.run_if_up(self._nodes.lane(place), commands, timeout_s)
        except ConnectionLost as lost:
            raise self._nodes.note_lost(lost, place) from None
        for at, reply in enumerate(replies):
            if type(reply) is ServerError:
                try:
                    (replies[at],) = await self._follow(reply, place, commands[at : at + 1], until, None, [reply])
                except (ServerError, ConnectionLost) as failure:
                    replies[at] = failure
        return replies

    async def _follow(
        self,
        refused: ServerError,
        place: str,
        commands: Sequence[Command],
        until: float,
        script: Script | None,
        replies: list[Any] | None = None,
        subject: Subject = None,
        wanted: Wanted | None = None,
    ) -> list[Any]:
        """Follow a redirection, and return the replies of the node that it leads to.

        Another error is raised, or returned among `replies` if it is one of them.
        """
        nodes = self._nodes
        for _ in range(_HOPS):
            nodes.note_refusal(refused, place)
            target = parse_redirection(refused, place)
            if target is None:
                break
            place = target.place
            if not target.is_ask and nodes.topology is not None:
                nodes.topology.move(target.slot, place)
            lane: Any = nodes.lane(place)
            if wanted is not None:
                run = partial(lane.run_confirmed, wanted=wanted, asking=target.is_ask)
            else:
                run = partial(_run_asking, lane) if target.is_ask else partial(lane.run, subject=subject)
            try:
                replies = await run(commands, until - monotonic(), script)
            except ServerError as again:
                refused, replies = again, None
            except ConnectionLost as lost:
                raise nodes.note_lost(lost, place) from None
            else:
                if type(replies[0]) is not ServerError:
                    return replies
                refused = replies[0]
        if replies is None:
            raise refused
        return replies

    async def _run_without_key(self, commands: Sequence[Command], topology: Topology, until: float) -> list[Any]:
        """Run commands without a key. SCAN and SCRIPT run on all nodes, other commands on one healthy node."""
        if commands[0][0] == "SCAN":
            return await self._scan(commands[0], topology, until)
        if commands[0][0] != "SCRIPT":
            place = self._nodes.healthy_primary(topology)
            # If this one refuses a connection, the store retries, and another one can answer.
            run = self._run_at if self._nodes.is_troubled(place) or len(commands) > 1 else self._run_part
            return await run(place, commands, until)
        # A former primary still accepts scripts without an error, so refresh the topology first.
        topology = await self._nodes.refresh_topology(until - monotonic())
        works = [partial(self._run_at, place, commands, until) for place in topology.primaries]
        outcomes = await self._side.run_all(works)
        failed = [outcome for outcome in outcomes if not isinstance(outcome, list)]
        if failed:
            raise failed[0]
        return [_merge_script_replies(replies) for replies in zip(*outcomes, strict=True)]

    async def _scan(self, command: Command, topology: Topology, until: float) -> list[Any]:
        """Run a SCAN over all nodes, one after the other. The cursor encodes the node and that node's cursor."""
        places = sorted(topology.primaries)
        number, cursor = split_cursor(int(command[1]))
        if number >= len(places):
            return [[b"0", []]]
        (reply,) = await self._run_at(places[number], [(command[0], cursor, *command[2:])], until)
        if isinstance(reply, list):
            reply = [b"%d" % next_cursor(number, int(reply[0]), len(places)), reply[1]]
        return [reply]

    async def run_at(self, place: str, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """Run commands on the node at this place.

        Raises:
            ServerError: The node replied with an error to all commands.
            ConnectionLost: The node did not reply.
        """
        return await self._run_at(place, commands, monotonic() + timeout_s)

    async def _run_at(self, place: str, commands: Sequence[Command], until: float) -> list[Any]:
        try:
            return await self._nodes.lane(place).run(commands, until - monotonic())
        except ConnectionLost as lost:
            raise self._nodes.note_lost(lost, place) from None

    def _no_owner(self) -> ServerError:
        self._nodes.start_refresh(self._reply_timeout_s)
        return ServerError("CLUSTERDOWN", "CLUSTERDOWN no node has the slot of this key")

    def node_of(self, commands: Sequence[Command]) -> str:
        """Return the place of the node that the commands go to; "" if the node is unknown or may be any."""
        key, topology = key_of(commands[0]), self._nodes.topology
        return "" if key is None or topology is None else topology.owners[slot_of(key)]

    async def channel_addresses(self, channels: Sequence[bytes], timeout_s: float) -> Sequence[Address | None]:
        """Return the address of the primary of each channel's slot; `None` for a slot without a node.

        Raises:
            ServerError: A node refused to name the primaries.
            ConnectionLost: No node replied.
        """
        topology = self._nodes.topology or await self._nodes.get_topology(timeout_s)
        places = [topology.owners[slot_of(channel)] for channel in channels]
        if "" in places:
            self._nodes.start_refresh(self._reply_timeout_s)
        return [self._nodes.address(place) if place else None for place in places]

    def note_channel_trouble(self, trouble: ServerError | ConnectionLost, place: str) -> None:
        """Follow a redirection, or look for the new owners of the slots of a node that fails or gave some away."""
        if isinstance(trouble, ConnectionLost):
            self._nodes.note_lost(trouble, place)
            return
        target = parse_redirection(trouble, place)
        if target is not None and not target.is_ask and self._nodes.topology is not None:
            self._nodes.topology.move(target.slot, target.place)
        if target is None and trouble.word == "MOVED":  # the other nodes may not know the new owner yet
            self._nodes.start_refresh(self._reply_timeout_s)
        with contextlib.suppress(ConnectionLost):
            self._nodes.note_refusal(trouble, place)

    async def primaries(self, timeout_s: float) -> dict[str, Transport]:
        """Return the transport to each primary, by its place.

        Raises:
            ServerError: A node refused to name the primaries.
            ConnectionLost: No node replied.
        """
        return {place: self._nodes.lane(place) for place in (await self._nodes.get_topology(timeout_s)).primaries}

    @property
    def places(self) -> tuple[str, ...]:
        """The places of all known primaries."""
        return () if self._nodes.topology is None else self._nodes.topology.primaries

    @property
    def calls_count(self) -> int:
        """The number of calls without a reply so far, if the lanes count them."""
        return self._nodes.calls_count

    async def sleep(self, seconds: float) -> None:
        await self._side.sleep(seconds)

    async def aclose(self) -> None:
        """Close all connections. Nothing can be called afterwards."""
        await self._nodes.aclose()

    def drop(self) -> None:
        """Close open connections with a warning, if `aclose` was never called."""
        self._nodes.drop()


def _merge_script_replies(replies: Sequence[Any]) -> Any:
    """Merge the nodes' replies to SCRIPT. An error of any node wins; a script exists if every node has it."""
    refused = next((reply for reply in replies if isinstance(reply, ServerError)), None)
    if refused is not None:
        return refused
    return [min(flags) for flags in zip(*replies, strict=True)] if isinstance(replies[0], list) else replies[0]


async def _run_asking(
    lane: Transport, commands: Sequence[Command], timeout_s: float, script: Script | None
) -> list[Any]:
    """Run commands on a node that is importing the slot, which accepts them only after ASKING.

    ASKING is in the same write. If there are several commands, it comes before MULTI.
    """
    until = monotonic() + timeout_s

    async def run(commands: Sequence[Command]) -> list[Any]:
        is_transaction = len(commands) > 1
        body = (("MULTI",), *commands, ("EXEC",)) if is_transaction else commands
        replies = await lane.run_independent((("ASKING",), *body), until - monotonic())
        return resp.replies_or_raise((resp.unpack_transaction if is_transaction else resp.check_replies)(replies[1:]))

    async def ask(command: Command) -> ServerError | None:
        return resp.refusal(await lane.run_independent((command,), until - monotonic()))

    replies = await run(commands)
    refusal = resp.refusal(replies)
    if refusal is not None and refusal.word == "NOSCRIPT" and script is not None:
        replies = await load_and_repeat(commands, script, ask, run)
    return replies

"""A Redis Cluster: one lane a node, and each call goes to the node that has its slot.

What a node refuses because the slot is elsewhere is followed at once, within the call's time. Nothing that happens to
one node keeps the calls to others from theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.base import MultiNode, Transport
from redismem.transport.nodes.nodes import Nodes
from redismem.transport.nodes.seeds import Places
from redismem.transport.nodes.sides import Side
from redismem.transport.nodes.slots import Topology, cursor_behind, cursor_parts, key_of, redirection, slot_of
from redismem.transport.replicas import Wanted

# So often a call is sent on; then it is its sender's to try again, a little later.
_HOPS = 5
_TROUBLED_SHARE = 0.25


class Cluster:
    """A transport to all nodes of a cluster, for asyncio or for blocking callers, as its side is."""

    repeats = False

    def __init__(self, places: Places, side: Side, *, reply_timeout_s: float) -> None:
        self._side = side
        self._nodes = Nodes(places, side, reply_timeout_s)
        self._reply_timeout_s = reply_timeout_s
        self.blocks = side.blocks
        self.place = places.place

    @property
    def nodes(self) -> MultiNode:
        """This transport: its nodes fail one by one."""
        return self

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, wanted: Wanted | None = None
    ) -> list[Any]:
        until = monotonic() + timeout_s
        nodes = self._nodes
        topology = nodes.topology or await nodes.known(timeout_s)
        key = key_of(commands[0])
        if key is None:
            return await self._run_without_key(commands, topology, until)
        place = topology.owners[slot_of(key)]
        if not place:
            raise self._unserved()
        lane: Any = nodes.lane(place)
        run = lane.run if wanted is None else partial(lane.run_confirmed, wanted=wanted)
        try:
            replies: list[Any] = await run(commands, timeout_s, script)
        except ServerError as refused:
            return await self._followed(refused, place, commands, until, script, wanted=wanted)
        except ConnectionLost as lost:
            raise nodes.lost(lost, place) from None
        if type(replies[0]) is ServerError:
            return await self._followed(replies[0], place, commands, until, script, replies, wanted)
        return replies

    async def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> list[Any]:
        """The replies that `run` gives, and behind them how many replicas of the node have what was written."""
        return await self.run(commands, timeout_s, script, wanted)

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        if not commands:
            return []
        until = monotonic() + timeout_s
        topology = self._nodes.topology or await self._nodes.known(timeout_s)
        parts: dict[str, list[int]] = {}
        for at, command in enumerate(commands):
            key = key_of(command)
            place = self._nodes.well(topology) if key is None else topology.owners[slot_of(key)]
            parts.setdefault(place, []).append(at)
        works = [partial(self._part, place, [commands[at] for at in ats], until) for place, ats in parts.items()]
        outcomes = [await works[0]()] if len(works) == 1 else await self._side.all(works)
        replies: list[Any] = [None] * len(commands)
        for ats, outcome in zip(parts.values(), outcomes, strict=True):
            for number, at in enumerate(ats):
                replies[at] = outcome[number] if isinstance(outcome, list) else outcome
        if not any(isinstance(outcome, list) for outcome in outcomes):
            raise replies[0]
        return replies

    async def _part(self, place: str, commands: list[Command], until: float) -> list[Any]:
        """The replies to those of independent commands that one node is to answer."""
        if not place:
            raise self._unserved()
        timeout_s = until - monotonic()
        if self._nodes.is_troubled(place):  # the others must not wait long for what has just not answered
            timeout_s *= _TROUBLED_SHARE
        try:
            replies = await self._nodes.lane(place).run_independent(commands, timeout_s)
        except ConnectionLost as lost:
            raise self._nodes.lost(lost, place) from None
        for at, reply in enumerate(replies):
            if type(reply) is ServerError:
                try:
                    (replies[at],) = await self._followed(reply, place, commands[at : at + 1], until, None, [reply])
                except (ServerError, ConnectionLost) as failure:
                    replies[at] = failure
        return replies

    async def _followed(
        self,
        refused: ServerError,
        place: str,
        commands: Sequence[Command],
        until: float,
        script: Script | None,
        replies: list[Any] | None = None,
        wanted: Wanted | None = None,
    ) -> list[Any]:
        """The replies of the node that a refusal points to. If to none, raises it, or gives it in its place."""
        nodes = self._nodes
        for _ in range(_HOPS):
            nodes.refused(refused, place)
            found = redirection(refused, place)
            if found is None:
                break
            place = found.place
            if not found.is_ask and nodes.topology is not None:
                nodes.topology.move(found.slot, place)
            lane: Any = nodes.lane(place)
            if wanted is not None:
                run = partial(lane.run_confirmed, wanted=wanted, asking=found.is_ask)
            else:
                run = partial(_asked, lane) if found.is_ask else lane.run
            try:
                replies = await run(commands, until - monotonic(), script)
            except ServerError as again:
                refused, replies = again, None
            except ConnectionLost as lost:
                raise nodes.lost(lost, place) from None
            else:
                if type(replies[0]) is not ServerError:
                    return replies
                refused = replies[0]
        if replies is None:
            raise refused
        return replies

    async def _run_without_key(self, commands: Sequence[Command], topology: Topology, until: float) -> list[Any]:
        """The replies of one node, any that is well; of all nodes to what looks at all keys, or is for all of them."""
        if commands[0][0] == "SCAN":
            return await self._scanned(commands[0], topology, until)
        if commands[0][0] != "SCRIPT":
            return await self._run_at(self._nodes.well(topology), commands, until)
        # What was a primary takes scripts as before, and nobody else may be told where its slots are now.
        topology = await self._nodes.seen_anew(until - monotonic())
        works = [partial(self._run_at, place, commands, until) for place in topology.primaries]
        outcomes = await self._side.all(works)
        failed = [outcome for outcome in outcomes if not isinstance(outcome, list)]
        if failed:
            raise failed[0]
        return [_of_all(replies) for replies in zip(*outcomes, strict=True)]

    async def _scanned(self, command: Command, topology: Topology, until: float) -> list[Any]:
        """A SCAN over all nodes, one after the other: the cursor says at which node it goes on, and where."""
        places = sorted(topology.primaries)
        number, cursor = cursor_parts(int(command[1]))
        if number >= len(places):
            return [[b"0", []]]
        (reply,) = await self._run_at(places[number], [(command[0], cursor, *command[2:])], until)
        if isinstance(reply, list):
            reply = [b"%d" % cursor_behind(number, int(reply[0]), len(places)), reply[1]]
        return [reply]

    async def run_at(self, place: str, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """The same as `run`, on the node at this place. Raises ServerError, ConnectionLost."""
        return await self._run_at(place, commands, monotonic() + timeout_s)

    async def _run_at(self, place: str, commands: Sequence[Command], until: float) -> list[Any]:
        try:
            return await self._nodes.lane(place).run(commands, until - monotonic())
        except ConnectionLost as lost:
            raise self._nodes.lost(lost, place) from None

    def _unserved(self) -> ServerError:
        self._nodes.look(self._reply_timeout_s)
        return ServerError("CLUSTERDOWN", "CLUSTERDOWN no node has the slot of this key")

    def node_of(self, commands: Sequence[Command]) -> str:
        """The place of the node that these commands are for; "" if that is not known, or if it may be any."""
        key, topology = key_of(commands[0]), self._nodes.topology
        return "" if key is None or topology is None else topology.owners[slot_of(key)]

    async def primaries(self, timeout_s: float) -> dict[str, Transport]:
        """The transport to each primary, by its place. Raises ServerError, ConnectionLost."""
        return {place: self._nodes.lane(place) for place in (await self._nodes.known(timeout_s)).primaries}

    @property
    def places(self) -> tuple[str, ...]:
        """The places of all primaries, as far as they are known."""
        return () if self._nodes.topology is None else self._nodes.topology.primaries

    @property
    def calls_count(self) -> int:
        """Calls that have no answer yet, if the lanes know it."""
        return self._nodes.calls_count

    async def sleep(self, seconds: float) -> None:
        await self._side.sleep(seconds)

    async def aclose(self) -> None:
        """Closes all connections. Nothing can be called afterwards."""
        await self._nodes.aclose()

    def drop(self) -> None:
        """Closes what is open, if nobody is left who could, and warns of it."""
        self._nodes.drop()


def _of_all(replies: Sequence[Any]) -> Any:
    """What all nodes together say to SCRIPT: a refusal if one refuses; a script is known if each of them knows it."""
    refused = next((reply for reply in replies if isinstance(reply, ServerError)), None)
    if refused is not None:
        return refused
    return [min(known) for known in zip(*replies, strict=True)] if isinstance(replies[0], list) else replies[0]


async def _asked(lane: Transport, commands: Sequence[Command], timeout_s: float, script: Script | None) -> list[Any]:
    """The replies of a node that is about to have the slot: it answers only those who say that they know.

    The word for it stands in the same write, before MULTI if there are several commands.
    """
    until = monotonic() + timeout_s
    is_transaction = len(commands) > 1
    body = (("ASKING",), ("MULTI",), *commands, ("EXEC",)) if is_transaction else (("ASKING",), *commands)
    read = resp.transaction_answers if is_transaction else resp.answers
    outcome = read((await lane.run_independent(body, timeout_s))[1:])
    refusal = resp.refusal(outcome)
    if refusal is not None and refusal.word == "NOSCRIPT" and script is not None:
        load = ("SCRIPT", "LOAD", script.source)
        outcome = read((await lane.run_independent((load, *body), until - monotonic()))[2:])
    if isinstance(outcome, list):
        return outcome
    raise outcome

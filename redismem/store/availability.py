"""Whether a namespace can be reached: what is known of its nodes without asking them, and the look that finds out."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from redismem.errors import StoreUnavailable
from redismem.events import facts
from redismem.info import Health
from redismem.protocol.call import Call
from redismem.protocol.ids import now_ms
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.server_errors import NOT_READY_WORDS, ConnectionLost, ServerError
from redismem.settings.settings import Settings
from redismem.store.breaker import Breaker, Breakers, BreakerState
from redismem.store.retries import explained, perhaps, redis_at
from redismem.transport.base import Transport, place_of

log = logging.getLogger("redismem")
UNTIL_IT_DOES = "; calls are refused until it does"
"""What the text of an error says of the calls that follow."""


class Reach:
    """The part of a store that knows which nodes answer."""

    @property
    def _goes_on(self) -> bool:
        """True if calls are served while Redis is down."""
        return False

    def __init__(self, transport: Transport, namespace: str, settings: Settings) -> None:
        """Raises InvalidSessionId for the namespace. No I/O."""
        self.settings = settings
        self.keys = Keys(namespace, settings.shards)
        self.transport = transport
        self.breaker = Breaker()
        self.breakers = None if transport.nodes is None else Breakers(transport.nodes, self.breaker)
        """If there are several nodes: what `breaker` is for all of them together, each has for itself."""
        self.is_agreed = False
        """Whether the namespace was found to be as the settings say."""
        self._reply_timeout_s = min(settings.reply_timeout_s, settings.deadline_s)

    @property
    def is_away(self) -> bool:
        """Whether a call would fail at once, because Redis is known to be away and it is too early for another look."""
        away = self.away_breakers()
        is_all = self.breakers is None or self.breakers.is_all_away()
        return is_all and bool(away) and min(breaker.probe_in_s() for breaker in away) > 0

    def breaker_of(self, call: Call[Any]) -> Breaker:
        """The breaker of the node which a call goes to."""
        return self.breaker if self.breakers is None else self.breakers.of(call)

    def away_breakers(self) -> list[Breaker]:
        """The breakers of the nodes that do not answer, perhaps that of all of them together."""
        if self.breakers is None:
            return [] if self.breaker.is_closed else [self.breaker]
        return self.breakers.away()

    def health(self) -> Health:
        """What is known of Redis, without asking it."""
        away = self.away_breakers()
        nodes = tuple(sorted(breaker.place for breaker in away if breaker.place))
        breaker = away[0] if nodes and self.breakers and self.breakers.is_all_away() else self.breaker
        since_ms = None if breaker.since_s is None else now_ms() - int(breaker.away_s() * 1000)
        return Health(breaker.state.value, since_ms, breaker.reason, away_nodes=nodes)

    async def probe(self, breaker: Breaker | None = None, *, at_once: bool = False) -> bool:
        """Looks whether what is away is there again, if it is time to and nobody else does. True if it is."""
        breaker = breaker or self.breaker
        if not breaker.begin_probe(at_once=at_once):
            return breaker.is_closed
        away_s, reason = 0.0, ""
        try:  # whatever ends the probe, another one may begin
            away_s = breaker.away_s()
            self._changed(BreakerState.HALF_OPEN, breaker)
            # The first may go out on a connection that is about to be given up.
            reason = await self._missed(breaker.place) and await self._missed(breaker.place)
            if not reason:
                breaker.found()
        finally:
            breaker.missed(reason)  # nothing, if it was found
        if breaker.is_closed:
            self._changed(BreakerState.CLOSED, breaker, away_s)
        return breaker.is_closed

    async def _missed(self, place: str) -> str:
        """Why a PING was not answered; "" if it was, or if the node at the place is none of the cluster's any more.

        A node of a cluster answers a PING while the cluster is down: it is asked for a key that lies there instead.
        """
        nodes = self.transport.nodes if place else None
        if nodes is not None and place not in nodes.places:
            return ""
        asked = self._asked_of(place)
        run = self.transport.run if nodes is None else partial(nodes.run_at, place)
        try:
            asked.finish(await run(asked.commands, self._reply_timeout_s))
        except ConnectionLost as lost:
            return lost.reason
        except ServerError as refused:  # who answers is there, and refuses each call with its own error
            return refused.word if refused.word in NOT_READY_WORDS else ""
        return ""

    def _asked_of(self, place: str) -> Call[Any]:
        nodes = self.transport.nodes if place else None
        if nodes is not None:
            for shard in self.keys.shards():
                call = namespace_calls.check_node(shard)
                if nodes.node_of(call.commands) == place:
                    return call
        return namespace_calls.ping()

    def away(self, breaker: Breaker, session_id: str | None, *, may_be_done: bool = False) -> StoreUnavailable:
        """The error of a call that is not sent, or not again, as Redis is known to be away."""
        redis, reason = redis_at(breaker.place or place_of(self.transport)), explained(breaker.reason)
        text = f"{redis} has not answered for {breaker.away_s():.1f} s: {reason}"
        return StoreUnavailable(
            text + UNTIL_IT_DOES + perhaps(may_be_done), session_id, breaker.reason, may_be_done=may_be_done
        )

    def unanswered(self, begun_s: float, failure: ConnectionLost) -> None:
        """A call found no answer in all the time it had: Redis may be away, unless it answered others meanwhile."""
        if failure.crowded:
            return
        breaker = self._failing(failure)
        if breaker.unanswered(begun_s, failure.reason):
            self._changed(BreakerState.OPEN, breaker)

    def _failing(self, failure: ConnectionLost) -> Breaker:
        """The breaker of what has not answered."""
        return self.breaker if self.breakers is None else self.breakers.at(failure.place)

    def _changed(self, state: BreakerState, breaker: Breaker, away_s: float = 0.0) -> None:
        """Says what a breaker does now, and when it closes, how long Redis was away."""
        redis = redis_at(breaker.place)
        known = facts(op="breaker", outcome=state.value, namespace=self.keys.namespace)
        if state is BreakerState.OPEN:
            # One that has never reached Redis, and serves nothing without it, says so by the error of its first call.
            level = logging.ERROR if self.is_agreed or self._goes_on else logging.DEBUG
            text = "%s does not answer: %s; calls do not wait for it until it does"
            log.log(level, text, redis, breaker.reason, extra=known)
        elif state is BreakerState.CLOSED:
            known["duration_ms"] = int(away_s * 1000)
            log.warning("%s answers again after %.1f s", redis, away_s, extra=known)

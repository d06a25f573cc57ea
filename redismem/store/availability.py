"""Track which nodes of a namespace answer, and probe the nodes that are down."""

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
from redismem.store.retries import explain, possibly_made, redis_at
from redismem.transport.base import Transport, place_of

log = logging.getLogger("redismem")
UNTIL_IT_DOES = "; calls are refused until it does"
"""The end of an error text: it describes the calls that follow."""


class Reach:
    """The part of a store that tracks which nodes answer."""

    @property
    def _has_fallback(self) -> bool:
        """True if calls are served while Redis is down."""
        return False

    def __init__(self, transport: Transport, namespace: str, settings: Settings) -> None:
        """Create the breakers, without I/O.

        Raises:
            InvalidSessionId: The namespace is not valid.
        """
        self.settings = settings
        self.keys = Keys(namespace, settings.shards)
        self.transport = transport
        self.breaker = Breaker()
        self.breakers = None if transport.nodes is None else Breakers(transport.nodes, self.breaker)
        """One breaker per node, in addition to `breaker` for Redis as a whole; `None` if Redis is a single node."""
        self.is_agreed = False
        """True once the namespace's record was found to match the settings."""
        self._reply_timeout_s = min(settings.reply_timeout_s, settings.deadline_s)

    @property
    def is_away(self) -> bool:
        """True if a call would fail at once: Redis is known to be down, and the next probe is not due yet."""
        away = self.away_breakers()
        is_all = self.breakers is None or self.breakers.is_all_away()
        return is_all and bool(away) and min(breaker.probe_in_s() for breaker in away) > 0

    def breaker_of(self, call: Call[Any]) -> Breaker:
        """Return the breaker of the node that the call goes to."""
        return self.breaker if self.breakers is None else self.breakers.of(call)

    def away_breakers(self) -> list[Breaker]:
        """Return all breakers that are not closed, which may include the one for Redis as a whole."""
        if self.breakers is None:
            return [] if self.breaker.is_closed else [self.breaker]
        return self.breakers.away()

    def health(self) -> Health:
        """Return the health of Redis as this process knows it, without I/O."""
        away = self.away_breakers()
        nodes = tuple(sorted(breaker.place for breaker in away if breaker.place))
        breaker = away[0] if nodes and self.breakers and self.breakers.is_all_away() else self.breaker
        since_ms = None if breaker.since_s is None else now_ms() - int(breaker.away_s() * 1000)
        return Health(breaker.state.value, since_ms, breaker.reason, away_nodes=nodes)

    async def probe(self, breaker: Breaker | None = None, *, at_once: bool = False) -> bool:
        """Probe Redis if a probe is due and no other probe is running. Return True if the breaker is closed now."""
        breaker = breaker or self.breaker
        if not breaker.begin_probe(at_once=at_once):
            return breaker.is_closed
        away_s, failure = 0.0, None
        try:  # even after an error or a cancellation, the next probe must be possible
            away_s = breaker.away_s()
            self._announce(BreakerState.HALF_OPEN, breaker)
            # The first attempt may use a connection that is already broken.
            failure = await self._probe_failure(breaker.place) and await self._probe_failure(breaker.place)
            if failure is None:
                breaker.close()
        finally:
            breaker.fail_probe(*failure or ("", ""))  # no effect after `close`
        if breaker.is_closed:
            self._announce(BreakerState.CLOSED, breaker, away_s)
        return breaker.is_closed

    async def _probe_failure(self, place: str) -> tuple[str, str] | None:
        """Probe Redis or one node. Return reason and details if it is down; `None` if it is up or has left the
        cluster.

        An error reply counts as up, unless it says that the server is not ready (LOADING, …). A cluster node is probed
        with one of its keys, because it answers PING even while the cluster is down.
        """
        nodes = self.transport.nodes if place else None
        if nodes is not None and place not in nodes.places:
            return None
        call = self._probe_call(place)
        run = self.transport.run if nodes is None else partial(nodes.run_at, place)
        try:
            call.finish(await run(call.commands, self._reply_timeout_s))
        except ConnectionLost as lost:
            return lost.reason, lost.text
        except ServerError as refused:  # a server that replies is up, and each call gets its own error
            return (refused.word, "") if refused.word in NOT_READY_WORDS else None
        return None

    def _probe_call(self, place: str) -> Call[Any]:
        nodes = self.transport.nodes if place else None
        if nodes is not None:
            for shard in self.keys.shards():
                call = namespace_calls.check_node(shard)
                if nodes.node_of(call.commands) == place:
                    return call
        return namespace_calls.ping()

    def away_error(self, breaker: Breaker, session_id: str | None, *, may_be_done: bool = False) -> StoreUnavailable:
        """Return the error for a call that is not sent, or not retried, because Redis is known to be down."""
        redis, reason = redis_at(breaker.place or place_of(self.transport)), explain(breaker.reason, breaker.text)
        text = f"{redis} has not answered for {breaker.away_s():.1f} s: {reason}"
        return StoreUnavailable(
            text + UNTIL_IT_DOES + possibly_made(may_be_done), session_id, breaker.reason, may_be_done=may_be_done
        )

    def note_unanswered(self, begun_s: float, failure: ConnectionLost) -> None:
        """Record a call without a reply by its deadline.

        Redis counts as down unless it answered other calls meanwhile.
        """
        if failure.crowded:
            return
        breaker = self._breaker_at_fault(failure)
        if breaker.trip(begun_s, failure.reason, failure.text):
            self._announce(BreakerState.OPEN, breaker)

    def _breaker_at_fault(self, failure: ConnectionLost) -> Breaker:
        """Return the breaker of the node that did not answer."""
        return self.breaker if self.breakers is None else self.breakers.at(failure.place)

    def _announce(self, state: BreakerState, breaker: Breaker, away_s: float = 0.0) -> None:
        """Log the new state of a breaker. If it has closed, log also how long Redis was down."""
        redis = redis_at(breaker.place)
        log_fields = facts(op="breaker", outcome=state.value, namespace=self.keys.namespace)
        if state is BreakerState.OPEN:
            # Before the first contact and without the fallback, the error of the first call already says this.
            level = logging.ERROR if self.is_agreed or self._has_fallback else logging.DEBUG
            text = "%s does not answer: %s; calls do not wait for it until it does"
            log.log(level, text, redis, explain(breaker.reason, breaker.text), extra=log_fields)
        elif state is BreakerState.CLOSED:
            log_fields["duration_ms"] = int(away_s * 1000)
            log.warning("%s answers again after %.1f s", redis, away_s, extra=log_fields)

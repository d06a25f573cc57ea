"""Track which nodes of a namespace answer, and probe the nodes that are down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from redismem.context.info import Health
from redismem.errors import StoreUnavailable
from redismem.events import facts
from redismem.protocol.call import Call
from redismem.protocol.ids import now_ms
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.server_errors import NOT_READY_WORDS, ConnectionLost, ServerError
from redismem.store.breaker import Breaker, Breakers, BreakerState
from redismem.store.retries import explain, possibly_made, redis_at
from redismem.transport.base import Transport, place_of

log = logging.getLogger("redismem")
OnChange = Callable[[BreakerState, Breaker, float], None]
"""Called with the new state of a breaker and, if it has closed, the seconds for which Redis was down."""
UNTIL_IT_DOES = "; calls are refused until it does"
"""The end of an error text: it describes the calls that follow."""


class Namespace(Protocol):
    """A store, as far as its availability uses it: the keys of a namespace, and the transport to them."""

    transport: Transport
    keys: Keys


class Availability:
    """The part of a store that tracks which nodes answer."""

    def __init__(self, namespace: Namespace, reply_timeout_s: float, on_change: OnChange) -> None:
        """Create the breakers, without I/O. `on_change` is called whenever the state of a breaker changes."""
        self.reply_timeout_s = reply_timeout_s
        """The longest time to wait for a reply."""
        self._namespace, self._on_change = namespace, on_change
        transport = namespace.transport
        self.breaker = Breaker()
        self.breakers = None if transport.nodes is None else Breakers(transport.nodes, self.breaker)
        """One breaker per node, in addition to `breaker` for Redis as a whole; `None` if Redis is a single node."""

    @property
    def is_away(self) -> bool:
        """True if a call would fail at once: Redis is known to be down, and the next probe is not due yet."""
        away = self.away()
        is_all = self.breakers is None or self.breakers.is_all_away()
        return is_all and bool(away) and min(breaker.probe_in_s() for breaker in away) > 0

    def breaker_of(self, call: Call[Any]) -> Breaker:
        """Return the breaker of the node that the call goes to."""
        return self.breaker if self.breakers is None else self.breakers.of(call)

    def away(self) -> list[Breaker]:
        """Return all breakers that are not closed, which may include the one for Redis as a whole."""
        if self.breakers is None:
            return [] if self.breaker.is_closed else [self.breaker]
        return self.breakers.away()

    def health(self) -> Health:
        """Return the health of Redis as this process knows it, without I/O."""
        away = self.away()
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
            self._on_change(BreakerState.HALF_OPEN, breaker, 0.0)
            # The first attempt may use a connection that is already broken.
            failure = await self._probe_failure(breaker.place) and await self._probe_failure(breaker.place)
            if failure is None:
                breaker.close()
        finally:
            breaker.fail_probe(*failure or ("", ""))  # no effect after `close`
        if breaker.is_closed:
            self._on_change(BreakerState.CLOSED, breaker, away_s)
        return breaker.is_closed

    async def await_probe(self, breaker: Breaker, session_id: str | None) -> None:
        """Probe a node that counts as down, if it is time to.

        Raises:
            StoreUnavailable: The node does not answer, or it is too early for a probe.
        """
        if not await self.probe(breaker):
            await self._namespace.transport.sleep(0)  # a caller that retries at once must not starve other tasks
            raise self.away_error(breaker, session_id)

    async def _probe_failure(self, place: str) -> tuple[str, str] | None:
        """Probe Redis or one node. Return reason and details if it is down; `None` if it is up or has left the
        cluster.

        An error reply counts as up, unless it says that the server is not ready (LOADING, …). A cluster node is probed
        with one of its keys, because it answers PING even while the cluster is down.
        """
        nodes = self._namespace.transport.nodes if place else None
        if nodes is not None and place not in nodes.places:
            return None
        call = self._probe_call(place)
        run = self._namespace.transport.run if nodes is None else partial(nodes.run_at, place)
        try:
            call.finish(await run(call.commands, self.reply_timeout_s))
        except ConnectionLost as lost:
            return lost.reason, lost.text
        except ServerError as refused:  # a server that replies is up, and each call gets its own error
            return (refused.word, "") if refused.word in NOT_READY_WORDS else None
        return None

    def _probe_call(self, place: str) -> Call[Any]:
        nodes = self._namespace.transport.nodes if place else None
        if nodes is not None:
            for shard in self._namespace.keys.shards():
                call = namespace_calls.check_node(shard)
                if nodes.node_of(call.commands) == place:
                    return call
        return namespace_calls.ping()

    def away_error(self, breaker: Breaker, session_id: str | None, *, may_be_done: bool = False) -> StoreUnavailable:
        """Return the error for a call that is not sent, or not retried, because Redis is known to be down."""
        redis, reason = (
            redis_at(breaker.place or place_of(self._namespace.transport)),
            explain(breaker.reason, breaker.text),
        )
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
        breaker = self.breaker_at_fault(failure)
        if breaker.trip(begun_s, failure.reason, failure.text):
            self._on_change(BreakerState.OPEN, breaker, 0.0)

    def breaker_at_fault(self, failure: ConnectionLost) -> Breaker:
        """Return the breaker of the node that did not answer."""
        return self.breaker if self.breakers is None else self.breakers.at(failure.place)


def log_change(state: BreakerState, breaker: Breaker, away_s: float, namespace: str, level: int) -> None:
    """Log the new state of a breaker. If it has opened, at this level; if it has closed, how long Redis was down."""
    redis = redis_at(breaker.place)
    log_fields = facts(op="breaker", outcome=state.value, namespace=namespace)
    if state is BreakerState.OPEN:
        text = "%s does not answer: %s; calls do not wait for it until it does"
        log.log(level, text, redis, explain(breaker.reason, breaker.text), extra=log_fields)
    elif state is BreakerState.CLOSED:
        log_fields["duration_ms"] = int(away_s * 1000)
        log.warning("%s answers again after %.1f s", redis, away_s, extra=log_fields)

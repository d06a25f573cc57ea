"""A store that tells a hook of each call. One without a hook is a plain store, and none of this is on its path."""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Awaitable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Any, TypeVar

from redismem.concurrency.background import Background
from redismem.concurrency.callbacks import ENDING
from redismem.context import Context, Receipt, State
from redismem.errors import Conflict
from redismem.events import Event, OnEvent, facts, unquoted
from redismem.info import SessionInfo
from redismem.protocol.call import Call
from redismem.protocol.clock import Clock
from redismem.protocol.ids import session_hash
from redismem.protocol.queue.calls import Job, covered_sizes
from redismem.protocol.session.append import appended_sizes
from redismem.protocol.session.pages import Page
from redismem.settings.settings import Settings
from redismem.store.breaker import Breaker, BreakerState
from redismem.store.fallback.store import FallbackStore
from redismem.store.store import Store
from redismem.transport.base import Transport

log = logging.getLogger("redismem")

T = TypeVar("T")

_APPENDS = frozenset(["append", "append_and_read", "replay"])
_MAY_FIND_NOTHING = frozenset(["read", "prune"])
_in_hook: ContextVar[bool] = ContextVar("redismem_in_hook", default=False)


@dataclass(slots=True)
class _Watched(Call[T]):
    """A call that knows how often it was sent; what it reads like when sent again knows it too."""

    sends: list[float] = field(default_factory=list)


class ObservedStore(Store):
    """The same store. `on_event` is told of each call when it has ended, also if it failed."""

    def __init__(self, transport: Transport, namespace: str, settings: Settings, *more: Any, on_event: OnEvent) -> None:
        """Raises InvalidSessionId for the namespace, TypeError for a hook that is no plain function. No I/O."""
        if not callable(on_event) or _must_be_awaited(on_event):
            raise TypeError("on_event is a plain function, which takes an event and returns at once")
        super().__init__(transport, namespace, settings, *more)
        self._on_event = on_event
        self._hook_failures: set[type[BaseException]] = set()

    async def run(self, call: Call[T], *, quarantine: bool = False, begun_s: float | None = None) -> T:
        if isinstance(call, _Watched):  # its session was put into quarantine: the same call still
            return await super().run(call, quarantine=quarantine, begun_s=begun_s)
        watched, op, asked_s = _watched(call), call.op, monotonic()
        try:  # as `_observed` does, without a coroutine more on the way of a turn
            value = await super().run(watched, quarantine=quarantine, begun_s=begun_s)
        except BaseException as error:
            self._tell(op, _failure(error), asked_s, call.session_id, watched)
            raise
        self._tell(op, _outcome(op, value), asked_s, call.session_id, watched, value)
        return value

    async def once(self, call: Call[T], begun_s: float | None = None) -> T:
        watched = _watched(call)
        return await self._observed(call.op, super().once(watched, begun_s), call.session_id, watched)

    def told(self, op: str, work: Coroutine[Any, Any, T], session_id: str | None = None) -> Coroutine[Any, Any, T]:
        return self._observed(op, work, session_id)

    def _changed(self, state: BreakerState, breaker: Breaker, away_s: float = 0.0) -> None:
        super()._changed(state, breaker, away_s)
        self._tell("breaker", state.value, monotonic() - away_s, None, None)

    def _sent(self, call: Call[T], timeout_s: float) -> Awaitable[list[Any]]:
        assert isinstance(call, _Watched)
        call.sends.append(timeout_s)
        return super()._sent(call, timeout_s)

    async def _observed(
        self, op: str, work: Coroutine[Any, Any, T], session_id: str | None, call: _Watched[Any] | None = None
    ) -> T:
        begun_s = monotonic()
        try:
            value = await work
        except BaseException as error:
            self._tell(op, _failure(error), begun_s, session_id, call)
            raise
        self._tell(op, _outcome(op, value), begun_s, session_id, call, value)
        return value

    def _tell(
        self,
        op: str,
        outcome: str,
        begun_s: float,
        session_id: str | None,
        call: _Watched[Any] | None,
        value: Any = None,
    ) -> None:
        if _in_hook.get():  # what a hook calls by itself would have events without end
            return
        event = Event(
            op,
            outcome,
            (monotonic() - begun_s) * 1000,
            self.keys.namespace,
            None if session_id is None else session_hash(session_id),
            0 if call is None else len(call.sends),
            *_sizes(op, call, value),
        )
        inside = _in_hook.set(True)
        try:
            self._on_event(event)
        except ENDING:
            raise
        except BaseException as error:
            # The call is done: what it gave, or raised, is what the caller is owed.
            if type(error) not in self._hook_failures:
                self._hook_failures.add(type(error))
                log.error(
                    "on_event failed with %s; others of the kind are not logged",
                    type(error).__name__,
                    exc_info=unquoted(error),
                    extra=facts(op="on_event", namespace=event.namespace, error=type(error).__name__),
                )
        finally:
            _in_hook.reset(inside)


def _must_be_awaited(on_event: OnEvent) -> bool:
    """Whether a call of it would not run it: a coroutine function or a generator, or an object with such a __call__."""
    asks = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return any(ask(each) for ask in asks for each in (on_event, getattr(on_event, "__call__", None)))  # noqa: B004


class _ObservedFallbackStore(ObservedStore, FallbackStore):
    pass


def open_store(
    transport: Transport,
    namespace: str,
    settings: Settings,
    on_event: OnEvent | None,
    clock: Clock | None,
    background: Background | None = None,
) -> Store:
    """A store, which tells the hook if there is one, and which has the fallback if it is given where to replay.

    Raises InvalidSessionId, TypeError.
    """
    store: Store
    if on_event is None:
        if background is None:
            store = Store(transport, namespace, settings, clock)
        else:
            store = FallbackStore(transport, namespace, settings, clock, background)
    elif background is None:
        store = ObservedStore(transport, namespace, settings, clock, on_event=on_event)
    else:
        store = _ObservedFallbackStore(transport, namespace, settings, clock, background, on_event=on_event)
    # An event loop keeps a connection open for ever, also when nobody has a reference to it.
    weakref.finalize(store, transport.drop).atexit = False
    return store


def _watched(call: Call[T]) -> _Watched[T]:
    known = (call.session_id, call.commands, call.decode, call.script, call.resent, call.op)
    return _Watched(*known, call.is_independent, call.confirm, call.has_id, call.absent)


def _failure(error: BaseException) -> str:
    return "conflict" if isinstance(error, Conflict) else type(error).__name__


def _outcome(op: str, value: Any) -> str:
    if isinstance(value, Context):  # the way of a turn comes first
        if value.degraded:
            return "degraded"
        if value.receipt is not None:
            return "duplicate" if value.receipt.duplicate else "ok"
        return "ok" if value.epoch or op not in _MAY_FIND_NOTHING else "nothing"
    match value:
        case None | False:
            return "nothing"
        case StrEnum():
            return value.value
        case Job():
            return "job"
        case Receipt(degraded=True) | State(degraded=True) | SessionInfo(degraded=True):
            return "degraded"
        case Receipt():
            return "duplicate" if value.duplicate else "ok"
        case 0 if op in _MAY_FIND_NOTHING:
            return "nothing"
    return "ok"


def _sizes(op: str, call: _Watched[Any] | None, value: Any) -> tuple[int, int, int, int | None]:
    """Messages, their bytes, their tokens, and the window's messages."""
    if op in _APPENDS and call is not None:
        return *appended_sizes(call), _window_count(value)
    if op == "commit" and call is not None:
        count, tokens = covered_sizes(call)
        return count, 0, tokens, None
    if op == "messages" and isinstance(value, Page):
        return value.count, 0, 0, None
    if op == "prune" and isinstance(value, int):
        return value, 0, 0, None
    return 0, 0, 0, _window_count(value)


def _window_count(value: Any) -> int | None:
    if isinstance(value, Context | SessionInfo) or (isinstance(value, Receipt) and not value.duplicate):
        return value.window_count
    return None

"""Call a hook after each call. Without a hook, the store runs none of this code."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Coroutine
from contextvars import ContextVar
from enum import StrEnum
from time import monotonic
from typing import Any, TypeVar

from redismem.concurrency.callbacks import ENDING
from redismem.context.context import Context
from redismem.context.info import SessionInfo
from redismem.context.results import Receipt, State
from redismem.errors import Conflict
from redismem.events import Event, OnEvent, Op, facts, unquoted
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.queue.calls import Job
from redismem.protocol.session.pages import MessagePage

log = logging.getLogger("redismem")

T = TypeVar("T")

_in_hook: ContextVar[bool] = ContextVar("redismem_in_hook", default=False)


class Hook:
    """Calls `on_event` after each call that has succeeded or failed."""

    def __init__(self, on_event: OnEvent, namespace: str) -> None:
        """Create a hook.

        Raises:
            TypeError: `on_event` is not a plain function.
        """
        if not callable(on_event) or _must_be_awaited(on_event):
            raise TypeError("on_event is a plain function, which takes an event and returns at once")
        self._on_event = on_event
        self._namespace = namespace
        self._failures: set[type[BaseException]] = set()

    async def run(self, work: Coroutine[Any, Any, T], call: Call[T]) -> T:
        """Await the work of a call, and report its event."""
        call.sends, begun_s = [], monotonic()
        try:  # a copy of the code of `observe`, which saves a coroutine per turn
            value = await work
        except BaseException as error:
            self.tell(call.op, _failure(error), begun_s, call.session_id, call)
            raise
        self.tell(call.op, _outcome(call.op, value), begun_s, call.session_id, call, value)
        return value

    async def observe(self, op: Op, work: Coroutine[Any, Any, T], session_id: str | None) -> T:
        """Await work other than a single call, and report an event of this operation."""
        begun_s = monotonic()
        try:
            value = await work
        except BaseException as error:
            self.tell(op, _failure(error), begun_s, session_id, None)
            raise
        self.tell(op, _outcome(op, value), begun_s, session_id, None, value)
        return value

    def tell(
        self,
        op: Op,
        outcome: str,
        begun_s: float,
        session_id: str | None,
        call: Call[Any] | None,
        value: Any = None,
    ) -> None:
        """Call the hook with an event.

        An exception of the hook is logged once per type, and does not affect the call.
        """
        if _in_hook.get():  # a call made inside the hook would cause events without end
            return
        event = Event(
            op,
            outcome,
            (monotonic() - begun_s) * 1000,
            self._namespace,
            None if session_id is None else session_hash(session_id),
            0 if call is None or call.sends is None else len(call.sends),
            *_sizes(op, call, value),
        )
        inside = _in_hook.set(True)
        try:
            self._on_event(event)
        except ENDING:
            raise
        except BaseException as error:
            # The call is complete, and its caller gets the result or the error.
            if type(error) not in self._failures:
                self._failures.add(type(error))
                log.error(
                    "on_event failed with %s; others of the kind are not logged",
                    type(error).__name__,
                    exc_info=unquoted(error),
                    extra=facts(op="on_event", namespace=event.namespace, error=type(error).__name__),
                )
        finally:
            _in_hook.reset(inside)


def _must_be_awaited(on_event: OnEvent) -> bool:
    """True if a plain call of the function would not run its body.

    It is a coroutine function, a generator function, or an object whose __call__ is one.
    """
    asks = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return any(ask(each) for ask in asks for each in (on_event, getattr(on_event, "__call__", None)))  # noqa: B004


def _failure(error: BaseException) -> str:
    return "conflict" if isinstance(error, Conflict) else type(error).__name__


def _outcome(op: Op, value: Any) -> str:
    if isinstance(value, Context):  # first, because each turn takes this branch
        if value.degraded:
            return "degraded"
        if value.receipt is not None:
            return "duplicate" if value.receipt.duplicate else "ok"
        return "ok" if value.epoch or not op.may_find_nothing else "nothing"
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
        case 0 if op.may_find_nothing:
            return "nothing"
    return "ok"


def _sizes(op: Op, call: Call[Any] | None, value: Any) -> tuple[int, int, int, int | None]:
    """Return the counts of an event: messages, bytes, tokens, and messages in the window."""
    if op.appends and call is not None and (append := call.append) is not None:
        return len(append.elements), sum(map(len, append.elements)), append.tokens, _window_count(value)
    if op is Op.COMMIT and call is not None and call.named is not None:
        return call.named["count"] - call.named["uncounted_count"], 0, call.named["tokens"], None
    if op is Op.MESSAGES and isinstance(value, MessagePage):
        return value.count, 0, 0, None
    if op is Op.PRUNE and isinstance(value, int):
        return value, 0, 0, None
    return 0, 0, 0, _window_count(value)


def _window_count(value: Any) -> int | None:
    if isinstance(value, Context | SessionInfo) or (isinstance(value, Receipt) and not value.duplicate):
        return value.window_count
    return None

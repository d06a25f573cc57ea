"""The state of one conversation, beside its history: params, what is waited for, last intent, last result, plan."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar, Unpack

from redismem.context import State
from redismem.protocol.call import Call
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.state import StateChanges
from redismem.store.store import Store

T = TypeVar("T")


class SessionState:
    """What a session knows beside its messages. `Session` is one, and has the messages as well."""

    __slots__ = ("_calls", "_store")

    def __init__(self, store: Store, session_calls: SessionCalls) -> None:
        self._store = store
        self._calls = session_calls

    async def state(self) -> State:
        """All of the state: empty for an unknown session."""
        return await self._run(self._calls.state())

    async def params(self) -> dict[str, Any]:
        """All params by their names: empty for an unknown session."""
        return (await self.state()).params

    async def waiting(self) -> str | None:
        """The name of the param that the agent waits for; None if it waits for none."""
        return (await self.state()).waiting_for_param

    async def last_intent(self) -> Any:
        """What was set as the last intent; None if nothing was."""
        return (await self.state()).last_intent

    async def last_result(self) -> Any:
        """What was set as the last result; None if nothing was."""
        return (await self.state()).last_result

    async def plan(self) -> Any:
        """What was set as the plan; None if nothing was."""
        return (await self.state()).plan

    async def update(self, *, id: str | None = None, **changes: Unpack[StateChanges]) -> None:
        """Several changes of the state at once: `merge`, `waiting`, `last_intent`, `last_result`, `plan`.

        Creates a missing session. `id` names this change as it does an append: given again, nothing is written, so that
        what another writer has set since stays. Raises InvalidState, TooLarge, InvalidMessage for the id.
        """
        await self._run(self._calls.update(id, **changes))

    async def merge(self, params: Mapping[str, Any]) -> None:
        """Sets these params and leaves the others; a param set to UNSET is removed. Raises InvalidState, TooLarge."""
        await self.update(merge=params)

    async def set_waiting(self, name: str | None) -> None:
        """Notes which param the agent waits for; None: it waits for none. Raises InvalidState, TooLarge."""
        await self.update(waiting=name)

    async def set_last_intent(self, value: Any) -> None:
        """Any JSON value; None removes it. Raises InvalidState, TooLarge."""
        await self.update(last_intent=value)

    async def set_last_result(self, value: Any) -> None:
        """Any JSON value; None removes it. Raises InvalidState, TooLarge."""
        await self.update(last_result=value)

    async def set_plan(self, value: Any) -> None:
        """Any JSON value; None removes it. Raises InvalidState, TooLarge."""
        await self.update(plan=value)

    def _run(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        return self._store.run(call, quarantine=True)

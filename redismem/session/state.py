"""The state of one conversation: params, the param it waits for, last intent, last result and plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from redismem.context.results import State
from redismem.protocol.replies import telemetry
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.state import StateChanges
from redismem.session.renewal import renew_aged
from redismem.store.store import Store


class SessionState:
    """The part of a session that reads and sets its state."""

    __slots__ = ("_calls", "_store")

    def __init__(self, store: Store, session_calls: SessionCalls) -> None:
        self._store = store
        self._calls = session_calls

    async def telemetry(self) -> dict[str, Any]:
        """Return `history_count`, `params_keys` and `waiting_for_param`: counts and names, no values, safe to log."""
        return telemetry(await self._store.run(self._calls.info()))

    async def state(self, *, renew: bool = False) -> State:
        """Return the whole state; it is empty for an unknown session. `renew` counts as use, as in `read()`."""
        state = await self._store.run(self._calls.state(renew=renew))
        if renew:
            renew_aged(self._store, self._calls)
        return state

    async def params(self) -> dict[str, Any]:
        """Return all params by name; an unknown session has none."""
        return (await self.state()).params

    async def waiting(self) -> str | None:
        """Return the name of the param that the agent waits for; `None` means that it waits for no param."""
        return (await self.state()).waiting_for_param

    async def last_intent(self) -> Any:
        """Return the last intent; `None` if it is not set."""
        return (await self.state()).last_intent

    async def last_result(self) -> Any:
        """Return the last result; `None` if it is not set."""
        return (await self.state()).last_result

    async def plan(self) -> Any:
        """Return the plan; `None` if it is not set."""
        return (await self.state()).plan

    async def title(self) -> str | None:
        """Return the title that was set; `None` if none was. It is no part of `state()`."""
        return await self._store.run(self._calls.title())

    async def update(self, *, id: str | None = None, **changes: Unpack[StateChanges]) -> None:
        """Change several parts of the state at once, all or nothing. A missing session is created.

        Args:
            id: An id that makes the change idempotent. If one of the session's last 16 appends and state changes had
                this id, nothing is written, so later changes by other writers survive a retry.
            merge: Params to set, see `merge()`. Similarly `waiting`, `last_intent`, `last_result`, `plan` and `title`,
                see `set_waiting()`, `set_last_intent()`, `set_last_result()`, `set_plan()` and `set_title()`.
            instruction: The instruction of this conversation, a text for its model; None removes it. `state()` has it.

        Raises:
            InvalidState: A param name, a value or the title cannot be stored.
            TooLarge: A value, or the number of params, exceeds its limit.
            InvalidMessage: The id is invalid.
        """
        receipt = await self._store.run(self._calls.update(id, **changes), quarantine=True)
        if receipt.created:
            await self._store.agreement.agree_again()

    async def merge(self, params: Mapping[str, Any]) -> None:
        """Set these params to JSON values and keep all others. The value UNSET removes a param.

        Raises:
            InvalidState: A name or a value cannot be stored.
            TooLarge: A value, or the number of params, exceeds its limit.
        """
        await self.update(merge=params)

    async def set_waiting(self, name: str | None) -> None:
        """Set the name of the param that the agent waits for. `None` means that it waits for no param.

        Raises:
            InvalidState: The name cannot be stored.
            TooLarge: The name exceeds its limit.
        """
        await self.update(waiting=name)

    async def set_last_intent(self, value: Any) -> None:
        """Set the last intent to any JSON value. None removes it.

        Raises:
            InvalidState: The value cannot be stored.
            TooLarge: The value exceeds its limit.
        """
        await self.update(last_intent=value)

    async def set_last_result(self, value: Any) -> None:
        """Set the last result to any JSON value. None removes it.

        Raises:
            InvalidState: The value cannot be stored.
            TooLarge: The value exceeds its limit.
        """
        await self.update(last_result=value)

    async def set_plan(self, value: Any) -> None:
        """Set the plan to any JSON value. None removes it.

        Raises:
            InvalidState: The value cannot be stored.
            TooLarge: The value exceeds its limit.
        """
        await self.update(plan=value)

    async def set_title(self, title: str | None) -> None:
        """Set the title that lists of conversations show: one line of 1 to 64 bytes. None removes it.

        `forget()` of a message removes the title too, because it may tell of the message.

        Raises:
            InvalidState: The title is empty or too long, or has control characters or surrounding whitespace.
        """
        await self.update(title=title)

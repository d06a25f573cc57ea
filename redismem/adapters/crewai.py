"""CrewAI: `FlowPersistence` keeps the states of flows, and what they wait for, in Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Self

from redismem import CorruptSession, InvalidSettings
from redismem.adapters.sessions import check_memory, check_owner, join_id, resolve_owner
from redismem.blocking import Memory, Record
from redismem.record import Change
from redismem.settings.extras import from_extra

with from_extra("crewai", __name__):
    from crewai.flow.async_feedback.types import PendingFeedbackContext
    from crewai.flow.persistence.base import FlowPersistence as _FlowPersistence
    from pydantic import BaseModel, Field, PrivateAttr

_STATE, _METHOD, _PENDING = b"state", b"method", b"pending"
"""The fields of a flow: its state, the method that has ended, and what it waits for with the state of that moment."""


class FlowPersistence(_FlowPersistence):
    """The states of CrewAI's flows, in place of `SQLiteFlowPersistence`.

    >>> persistence = FlowPersistence("redis://127.0.0.1:6379/0")
    >>> flow = ReviewFlow(persistence=persistence)

    Each flow is a record with its latest state alone. Any process resumes a flow that waits for feedback. A flow that
    CrewAI dumps into a checkpoint of its own leaves out URL, memory and owner: it is restored with `REDISMEM_URL`.

    Every method may raise StoreUnavailable, and InvalidSessionId if the id of the flow is empty.
    """

    persistence_type: str = Field(default="FlowPersistence")
    url: str | None = Field(default=None, exclude=True, repr=False)
    memory: Any = Field(default=None, exclude=True, repr=False)
    key_prefix: str = "crewai_flow"
    ttl: float | None = None
    owner: str | Callable[[str], str | None] | None = Field(default=None, exclude=True, repr=False)
    _opened: Memory = PrivateAttr()

    def __init__(
        self,
        url: str | None = None,
        /,
        *,
        memory: Memory | None = None,
        key_prefix: str = "crewai_flow",
        ttl: float | None = None,
        owner: str | Callable[[str], str | None] | None = None,
        **fields: Any,
    ) -> None:
        """Make a persistence. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A `redismem.blocking.Memory` to use instead of a URL. The caller closes it.
            key_prefix: The flow `42` is the record `<key_prefix>:42` of redismem.
            ttl: The seconds after its last use after which Redis removes a flow. `None` keeps it.
            owner: The person whom the flows belong to, so that `memory.forget(owner=...)` removes them. If a
                persistence serves several persons: a function that returns the owner of a flow's id, or `None`.
            fields: The fields of a dump.

        Raises:
            InvalidRecord: `ttl` is out of range.
            InvalidSessionId: `key_prefix` is not a string, or the owner is invalid.
            InvalidSettings: URL or memory is invalid, or both are given.
        """
        join_id(key_prefix, "x")
        check_owner(owner)
        url = fields.pop("url", url)
        if memory is not None:
            check_memory(memory, Memory)
            if url is not None:
                raise InvalidSettings("give one of url and memory: only one of them would be used")
        super().__init__(url=url, memory=memory, key_prefix=key_prefix, ttl=ttl, owner=owner, **fields)
        self._opened = memory or Memory.connect(url)
        try:
            self._opened.record(join_id(key_prefix, "x"), ttl_s=ttl)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A memory of the caller stays open."""
        if self.memory is None:
            self._opened.close()

    def init_db(self) -> None:
        """Do nothing: Redis needs no tables."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """Store the state of a flow, in place of the earlier one.

        Raises:
            ValueError: The state is neither a dict nor a pydantic model, or it contains itself.
            TooLarge: The state has more than 64 MiB.
        """
        self._open(flow_uuid).write(Change(sets=_encode_state(method_name, state_data)))

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the latest state of a flow; `None` if there is no such flow."""
        return _decode(self._read(flow_uuid, _STATE))

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Store the state of a flow and what it waits for, in one step. Raises as `save_state` does."""
        state = _encode_state(context.method_name, state_data)
        pending = {"context": context.to_dict(), "state": json.loads(state[_STATE])}
        self._open(flow_uuid).write(Change(sets={**state, _PENDING: _encode(pending)}))

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state in which a flow waits, and what for; `None` if it does not wait."""
        pending = _decode(self._read(flow_uuid, _PENDING))
        return None if pending is None else (pending["state"], PendingFeedbackContext.from_dict(pending["context"]))

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Note that a flow does not wait any more. Its state stays."""
        record = self._open(flow_uuid)
        if record.exists():
            record.write(Change(drops=[_PENDING]))

    def _read(self, flow_uuid: str, field: bytes) -> bytes | None:
        record = self._open(flow_uuid)
        try:
            [value] = record.get(field, renew=True)
        except CorruptSession:  # a flow that cannot read would never write anew
            record.set_aside()
            return None
        return value

    def _open(self, flow_uuid: str) -> Record:
        owner = resolve_owner(self.owner, flow_uuid)
        return self._opened.record(join_id(self.key_prefix, flow_uuid), owner=owner, ttl_s=self.ttl)


def _encode_state(method_name: str, state: dict[str, Any] | BaseModel) -> Mapping[bytes, bytes]:
    if isinstance(state, BaseModel):
        state = _dump(state)
    if not isinstance(state, dict):
        raise ValueError(f"state_data must be either a Pydantic BaseModel or dict, got {type(state)}")
    return {_STATE: _encode(state), _METHOD: method_name.encode("utf-8", "surrogatepass")}


def _dump(model: BaseModel) -> dict[str, Any]:
    try:
        return model.model_dump(mode="json")
    except Exception:  # a field that JSON cannot hold: it becomes a text below
        return model.model_dump()


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, default=_to_plain).encode()


def _to_plain(value: Any) -> Any:
    """Return what JSON cannot hold as CrewAI's own persistence stores it."""
    if isinstance(value, BaseModel):
        return _dump(value)
    if isinstance(value, set | tuple):
        return list(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _decode(value: bytes | None) -> dict[str, Any] | None:
    decoded = None if value is None else json.loads(value)
    return decoded if isinstance(decoded, dict) else None

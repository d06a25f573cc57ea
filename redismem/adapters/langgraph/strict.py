"""The serializer of checkpoints: stored bytes become objects of allowed types alone."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redismem.errors import InvalidRecord

AllowedType = type | tuple[str, str]
_KINDS = ("null", "bytes", "bytearray", "msgpack")
_NAME_CHARS = 200

_refused: ContextVar[list[str] | None] = ContextVar("redismem.langgraph.refused", default=None)


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer, limited to types that LangGraph considers safe, and to those that you allow.

    >>> RedismemSaver(serde=EncryptedSerializer.from_pycryptodome_aes(StrictSerializer([Ticket])))

    LangGraph's own imports and calls whatever a checkpoint names, unless LANGGRAPH_STRICT_MSGPACK is set; then it
    returns the bare fields of a type that is not allowed. This one raises an error that names the type.

    Args:
        allowed_types: Types of values in the state, as classes or as pairs of module and name.
    """

    def __init__(self, allowed_types: Iterable[AllowedType] = ()) -> None:
        super().__init__(allowed_msgpack_modules=[*allowed_types])

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return a value from its bytes.

        Raises:
            InvalidRecord: The value contains an object of a type that is not allowed. No code of the type has run.
        """
        if data[0] not in _KINDS:  # such as "json", whose constructors have rules of their own; no put writes it
            raise InvalidRecord(f"a checkpoint has a value in the format {data[0][:_NAME_CHARS]!r}, which is not read")
        refused: list[str] = []
        token = _refused.set(refused)
        try:
            value = super().loads_typed(data)
        finally:
            _refused.reset(token)
        if refused:
            raise InvalidRecord(_describe(refused[0]))
        return value


def _describe(name: str) -> str:
    return (
        f"a checkpoint has a value of the type {name!r}, which is not allowed. If your graph's state has it, pass the "
        "class in allowed_types= of RedismemSaver. If not, somebody else has written this value"
    )


def _note(event: SerdeEvent) -> None:
    """Note the type that LangGraph refuses: its own serializer would return the value without the type."""
    refused = _refused.get()
    if refused is not None and event["kind"] != "msgpack_unregistered_allowed":
        names = (event["module"], event["name"], event.get("method", ""))
        refused.append(".".join(str(name) for name in names if name)[:_NAME_CHARS])


register_serde_event_listener(_note)

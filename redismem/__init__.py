"""Session memory for chat backends, on Redis: one round trip per turn.

>>> async with Memory.connect("redis://127.0.0.1:6379/0", namespace="shop") as memory:
...     session = memory.session("user-42")
...     context = await session.append_and_read({"role": "user", "content": "Where is my order?"})

`redismem.blocking.Memory` has the same methods without `await`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from redismem.context.info import Depth, Forgotten, Health, Policy, Queues, SessionEntry, SessionInfo, SessionPage
from redismem.errors import (
    Conflict,
    CorruptSession,
    FallbackFull,
    ForgetIncomplete,
    ForgottenSessions,
    IdReused,
    InvalidItem,
    InvalidMessage,
    InvalidRecord,
    InvalidSessionId,
    InvalidSettings,
    InvalidState,
    InvalidTime,
    InvalidTransition,
    ItemNotFound,
    NotAllowed,
    NotInWindow,
    Overloaded,
    OwnerMismatch,
    RecordConflict,
    RedismemError,
    ScriptFailed,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    TooLarge,
    TurnBusy,
    TurnKnown,
    TurnLost,
    TurnStopped,
    Unconfirmed,
    UnsupportedFormat,
    WrongShards,
)

if TYPE_CHECKING:
    from redismem.context.context import Context
    from redismem.context.results import RecalledMessages, Receipt, State, Summary
    from redismem.live.info import TurnInfo
    from redismem.live.turn import Turn
    from redismem.memory.memory import Memory
    from redismem.messages.message import UNSET, Message
    from redismem.session.session import Session
    from redismem.settings.settings import Settings

__all__ = [
    "UNSET",
    "Conflict",
    "Context",
    "CorruptSession",
    "Depth",
    "FallbackFull",
    "ForgetIncomplete",
    "Forgotten",
    "ForgottenSessions",
    "Health",
    "IdReused",
    "InvalidItem",
    "InvalidMessage",
    "InvalidRecord",
    "InvalidSessionId",
    "InvalidSettings",
    "InvalidState",
    "InvalidTime",
    "InvalidTransition",
    "ItemNotFound",
    "Memory",
    "Message",
    "NotAllowed",
    "NotInWindow",
    "Overloaded",
    "OwnerMismatch",
    "Policy",
    "Queues",
    "RecalledMessages",
    "Receipt",
    "RecordConflict",
    "RedismemError",
    "ScriptFailed",
    "Session",
    "SessionEntry",
    "SessionExists",
    "SessionInfo",
    "SessionNotFound",
    "SessionPage",
    "Settings",
    "State",
    "StoreUnavailable",
    "Summary",
    "TooLarge",
    "Turn",
    "TurnBusy",
    "TurnInfo",
    "TurnKnown",
    "TurnLost",
    "TurnStopped",
    "Unconfirmed",
    "UnsupportedFormat",
    "WrongShards",
]

# Loaded by their first use, so that `redismem --help` loads none of them.
_MODULES = {
    "Context": "redismem.context.context",
    "RecalledMessages": "redismem.context.results",
    "Receipt": "redismem.context.results",
    "State": "redismem.context.results",
    "Summary": "redismem.context.results",
    "Memory": "redismem.memory.memory",
    "UNSET": "redismem.messages.message",
    "Message": "redismem.messages.message",
    "Session": "redismem.session.session",
    "Settings": "redismem.settings.settings",
    "Turn": "redismem.live.turn",
    "TurnInfo": "redismem.live.info",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

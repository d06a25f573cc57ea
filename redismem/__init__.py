"""Session memory for chat backends, on Redis: one round trip per turn.

>>> async with Memory.connect("redis://127.0.0.1:6379/0", namespace="shop") as memory:
...     session = memory.session("user-42")
...     context = await session.append_and_read({"role": "user", "content": "Where is my order?"})

`redismem.blocking.Memory` has the same methods without `await`.
"""

from redismem.context import Context, Receipt, State, Summary
from redismem.errors import (
    Conflict,
    CorruptSession,
    FallbackFull,
    ForgetIncomplete,
    IdReused,
    InvalidItem,
    InvalidMessage,
    InvalidSessionId,
    InvalidSettings,
    InvalidState,
    InvalidTime,
    InvalidTransition,
    ItemNotFound,
    NotAllowed,
    NotInWindow,
    RedismemError,
    ScriptFailed,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    TooLarge,
    Unconfirmed,
    UnsupportedFormat,
    WrongShards,
)
from redismem.info import (
    Depth,
    Forgotten,
    ForgottenSessions,
    Health,
    Policy,
    Queues,
    SessionEntry,
    SessionInfo,
    SessionPage,
)
from redismem.memory import Memory
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
    "Policy",
    "Queues",
    "Receipt",
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
    "Unconfirmed",
    "UnsupportedFormat",
    "WrongShards",
]

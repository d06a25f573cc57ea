"""Refuse an append id that was used before for other messages."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

from redismem.context import Context, Receipt
from redismem.errors import CorruptSession, IdReused, StoreUnavailable
from redismem.messages.coercion import Shape
from redismem.messages.message import Message, moment

_MADE_ANEW = frozenset(["id", "metadata", "timestamp"])
"""The members of a message that a sender may generate anew for each attempt."""


class Readable(Protocol):
    """A session that can be read."""

    async def read(self) -> Context:
        """Return the context of the session."""
        ...


async def check_duplicate(
    session: Readable, sent: Sequence[Message | Shape], receipt: Receipt, context: Context | None
) -> None:
    """Raise IdReused if the first append of this id stored other messages. Without `context`, reads the session."""
    if receipt.degraded:
        return
    with contextlib.suppress(StoreUnavailable, CorruptSession):  # the first append stands, so its receipt is due
        context = context or await session.read()
    check_same(sent, receipt, None if context is None or context.degraded else context)


def check_same(
    sent: Sequence[Message | Shape], receipt: Receipt, context: Context | None, seqs_count: int | None = None
) -> None:
    """Compare messages with those that the first append of their id stored.

    If messages were edited or have left the window, only the number of messages is compared.

    Args:
        sent: The messages of this append.
        receipt: The receipt of the first append.
        context: The session now. `None` if it could not be read.
        seqs_count: The number of seqs that this call would take. `None` means one per message.

    Raises:
        IdReused: The messages differ.
    """
    first_seq, last_seq = receipt.first_seq, receipt.last_seq
    stored = {} if context is None else {each.seq: each for each in (*context.pinned, *context.messages)}
    is_edited = context is not None and context.window_version != ""
    is_same = last_seq - first_seq + 1 == (len(sent) if seqs_count is None else seqs_count) and (
        is_edited
        or all(
            seq not in stored or _lasting(stored[seq].to_openai()) == _lasting(_payload(message))
            for seq, message in enumerate(sent, first_seq)
        )
    )
    if not is_same:
        stored_ms = stored[first_seq].stored_ms if first_seq in stored else 0
        when = f" at {moment(stored_ms).isoformat(timespec='seconds')}" if stored_ms else ""
        session_id = None if context is None else context.session_id
        raise IdReused(
            f"the append id was used before, for other messages: {first_seq} to {last_seq}{when}; nothing was written",
            session_id,
            first_seq,
            last_seq,
            stored_ms,
        )


def _payload(message: Message | Shape) -> dict[str, Any]:
    return (message if isinstance(message, Message) else Message.from_openai(message)).to_openai()


def _lasting(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in _MADE_ANEW}

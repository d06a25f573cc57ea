"""Refuse an append id that was used before for other messages."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import CorruptSession, IdReused, StoreUnavailable
from redismem.messages.coercion import Shape
from redismem.messages.decoding import decode_messages
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message, is_opaque, moment

_MADE_ANEW = frozenset(["id", "metadata", "timestamp"])
"""The members of a message that a sender may generate anew for each attempt."""
_STAMP = b"\xcf" + bytes(8)
"""The time that a script would add to an element."""


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

    Messages that were replaced, shortened or popped, or have left the window, cannot be compared; only their number is.

    Args:
        sent: The messages of this append.
        receipt: The receipt of the first append.
        context: The session now. `None` if it could not be read.
        seqs_count: The number of seqs that this call would take. `None` means one per message.

    Raises:
        IdReused: The messages differ.
    """
    known = () if context is None else (*context.pinned, *context.messages)
    session_id = None if context is None else context.session_id
    check_stored(sent, (receipt.first_seq, receipt.last_seq), known, session_id, seqs_count)


def check_stored(
    sent: Sequence[Message | Shape],
    seqs: tuple[int, int],
    known: Iterable[Message],
    session_id: str | None,
    seqs_count: int | None = None,
    fault: str = "the append id was used before, for other messages",
) -> None:
    """Compare messages with those at the seqs of their id, as far as these are known. Raises IdReused with `fault`."""
    first_seq, last_seq = seqs
    stored = {
        message.seq: message
        for message in known
        if not message.shortened and not (message.beside or {}).get("replaced")
    }
    is_same = last_seq - first_seq + 1 == (len(sent) if seqs_count is None else seqs_count) and all(
        seq not in stored or _lasting(stored[seq]) == _lasting(_as_stored(message))
        for seq, message in enumerate(sent, first_seq)
    )
    if not is_same:
        stored_ms = stored[first_seq].stored_ms if first_seq in stored else 0
        when = f" at {moment(stored_ms).isoformat(timespec='seconds')}" if stored_ms else ""
        where = f"{first_seq} to {last_seq}" if last_seq > first_seq else f"{first_seq}"
        raise IdReused(
            f"{fault}: {where}{when}; nothing was written",
            session_id,
            first_seq,
            last_seq,
            stored_ms,
        )


def _as_stored(message: Message | Shape) -> Message:
    """Return a message as a read would return it: SDK objects inside it become dicts."""
    element, _ = encode_message(message if isinstance(message, Message) else Message.from_openai(message), lambda _: 0)
    return decode_messages([element + _STAMP], 1, "")[0]


def _lasting(message: Message) -> str:
    """Return the parts of a message that a retry repeats, as text: JSON tells 1, 1.0 and true apart."""
    payload = message.to_openai()
    has_opaque_mark = is_opaque(message.beside)
    if not has_opaque_mark:
        payload = {name: value for name, value in payload.items() if name not in _MADE_ANEW}
    return json.dumps([has_opaque_mark, payload], sort_keys=True)

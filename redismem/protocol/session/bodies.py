"""Move the bodies of the window's oldest large messages into the originals, and read them back. No I/O.

Each turn reads the whole window, so it cannot grow for ever, and no turn may be refused for what earlier turns hold. So
the whole message goes to a field of the originals, and a shortened one takes its place in the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.events import Op
from redismem.formats.sections import is_output
from redismem.formats.shortening import shorten
from redismem.messages.decoding import decode_messages
from redismem.messages.encoding import encode_message
from redismem.messages.message import STAMP_BYTES, Message, is_opaque
from redismem.messages.values import Undecodable
from redismem.protocol import layout
from redismem.protocol.call import Call
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import Edit, Replaced, View

_LARGE_FIRST_BYTES = 64 * 1024
"""Messages over this size leave before smaller ones."""
_BATCH_BYTES = 2 * 1024 * 1024
"""The bodies of one call: about a millisecond of the server's time."""


class Shortened(NamedTuple):
    """A message of the window whose body shall leave it."""

    place: int
    seq: int
    before: bytes
    """The element as read."""
    after: bytes
    """The element of the shortened message."""
    more_tokens: int


def choose(calls: SessionCalls, view: View) -> list[Shortened]:
    """Choose the messages whose bodies leave the window, oldest first; none if the window is within half of its limit.

    Large messages stay while the newest have a quarter of the limit together. What the model has not answered yet stays
    up to the whole limit.
    """
    limit_bytes = calls.settings.max_window_bytes
    left_bytes = layout.large_bytes(view.elements)
    if left_bytes <= limit_bytes // 2:
        return []
    chosen: dict[int, Shortened] = {}
    candidates = [message for message in _leaving(view, limit_bytes) if not message.shortened]
    for floor in (_LARGE_FIRST_BYTES, layout.LARGE_ABOVE_BYTES):
        for message in candidates:
            place = view.place(message.seq)
            before = view.elements[place]
            if left_bytes <= limit_bytes // 4:
                break
            if len(before) <= floor or message.seq in chosen:
                continue
            if (after := _shortened_element(calls, message, before)) is not None:
                element, tokens = after
                chosen[message.seq] = Shortened(place, message.seq, before, element, tokens - message.tokens)
                left_bytes -= len(before) - layout.large_bytes([element])
    return [chosen[seq] for seq in sorted(chosen)]


def _leaving(view: View, limit_bytes: int) -> list[Message]:
    """Return the messages whose bodies may leave, oldest first: not those that the model has yet to answer."""
    messages = view.context.messages
    stop, size_bytes = len(messages), 0
    while stop and not is_output(messages[stop - 1].visible):
        size_bytes += layout.large_bytes([view.elements[view.place(messages[stop - 1].seq)]])
        if size_bytes > limit_bytes:
            break
        stop -= 1
    return messages[:stop]


def _shortened_element(calls: SessionCalls, message: Message, before: bytes) -> tuple[bytes, int] | None:
    """Return the shortened element with its stamp, and its tokens; `None` if it would not have half the size."""
    opaque = is_opaque(message.beside)
    payload = shorten(message.to_openai(), is_opaque=opaque)
    if payload is None:
        return None
    beside = {**(message.beside or {}), "shortened": len(before)}
    shorter = Message.restored(payload, beside, 0, 0, 0, "")
    element, tokens = encode_message(shorter, None if opaque else calls.count_tokens)
    return (element + before[-STAMP_BYTES:], tokens) if 2 * len(element) < len(before) else None


def batches(chosen: Sequence[Shortened]) -> Iterator[list[Shortened]]:
    """Split the chosen messages into parts of at most 2 MiB, or of one message."""
    part: list[Shortened] = []
    for each in chosen:
        if part and sum(len(one.before) for one in part) + len(each.before) > _BATCH_BYTES:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def move(view: View, part: Sequence[Shortened]) -> Edit:
    """Plan how these bodies move into the originals. Sent again, it finds the session edited, and changes nothing."""
    edit = Edit(Op.MOVE_BODIES, view.context.first_seq, log=None, token=b"")
    edit.replaced = {each.place: Replaced(each.before, each.after, layout.body_field(each.seq)) for each in part}
    edit.tokens = sum(each.more_tokens for each in part)
    return edit


def read(calls: SessionCalls, shortened: Sequence[Message]) -> Call[dict[int, Message]]:
    """Build a call that reads the whole messages of shortened ones, by seq. Those that are gone are missing."""
    keys = calls.keys

    def decode(stored: Sequence[bytes | None]) -> dict[int, Message]:
        return {
            short.seq: whole
            for short, element in zip(shortened, stored, strict=True)
            if element is not None and (whole := _decode(short, element)) is not None
        }

    fields = [layout.body_field(message.seq) for message in shortened]
    return Call(keys.session_id, (("HMGET", keys.originals, *fields),), decode, op=Op.READ_BODIES)


def _decode(short: Message, element: bytes) -> Message | None:
    """Return the whole message of a shortened one; `None` if the element is another message's, or unreadable."""
    try:
        (message,) = decode_messages([element], short.seq, short.epoch)
    except (Undecodable, UnsupportedFormat, ValueError):
        return None
    return message if message.stored_ms == short.stored_ms else None

"""Calls that remove or change messages of a session: prune, replace. No I/O.

Each call is built from a read of the session, and does nothing if the session has changed since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redismem.context import Context
from redismem.events import Op
from redismem.formats.tool_groups import cut_before
from redismem.messages.decoding import split_elements
from redismem.messages.encoding import encode_message
from redismem.messages.gaps import place_of
from redismem.messages.message import STAMP_BYTES, Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_block, dictionary_of, is_merged
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import encode_field, replaced_fields
from redismem.protocol import layout, replies, scripts
from redismem.protocol.appends import append_limits, pins_argument
from redismem.protocol.call import Call, context_reads, evalsha
from redismem.protocol.clock import time_argument
from redismem.protocol.ids import append_token, nonce
from redismem.protocol.layout import PINNED
from redismem.protocol.sendings import resend
from redismem.protocol.session.append import check_size, encode_with_pin
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.pages import Block


class Replacement(NamedTuple):
    """A new message with the seq and stamp of the old one, and its element without the stamp."""

    message: Message
    element: bytes


class BlockChange(NamedTuple):
    """The change of the block of originals that contains a message, as arguments of replace.lua. Empty by default."""

    number: int | str = layout.NONE
    before: bytes = b""
    after: bytes = b""
    signature: bytes = b""
    dropped: str = ""
    """The fields of the originals that go: the vectors of the message's block."""


NO_BLOCK_CHANGE = BlockChange()


@dataclass(frozen=True, slots=True)
class View:
    """A session as it was read: its context, and the stored bytes."""

    context: Context
    fields: Mapping[bytes, bytes]
    elements: Sequence[bytes]

    def element(self, message: Message) -> bytes:
        """Return the stored element of a message of the context."""
        place = self.place(message.seq)
        return self.elements[place] if place >= 0 else self.pinned_group(message)[message.seq]

    def place(self, seq: int) -> int:
        """Return the place of a seq in the window; negative before the window."""
        return place_of(seq, self.context.first_seq, self.context.last_seq, self.elements)

    def removed_field(self, count: int) -> bytes:
        """Return the new value of the field `removed`, after `count` more seqs have no message. Raises ValueError."""
        return b"%d" % (int(self.fields.get(layout.REMOVED, b"0")) + count)

    def pinned_group(self, message: Message) -> dict[int, bytes]:
        """Return the pinned messages that left the window together with this one: elements by seq.

        Raises:
            KeyError: the message is not among the pinned ones that left the window.
        """
        for field in self.fields:
            if field.startswith(PINNED) and message.seq in layout.pinned_seqs(field):
                return self.pinned_elements(field)
        raise KeyError(message.seq)

    def pinned_elements(self, field: bytes) -> dict[int, bytes]:
        """Return the pinned messages of a field `pinned:`, by seq. Raises Undecodable."""
        seqs = layout.pinned_seqs(field)
        return dict(zip(seqs, split_elements(self.fields[field], len(seqs)), strict=True))


def window(calls: SessionCalls) -> Call[View | None]:
    """Build a call that reads the whole window and state. It returns None if the session does not exist."""
    keys = calls.keys

    def decode(stored: Any, elements: Sequence[bytes]) -> View | None:
        fields = replies.own_fields(keys, stored)
        context = replies.context(keys.session_id, calls.settings.recent_limit, fields, elements)
        return View(context, fields, elements) if context.epoch else None

    return Call(keys.session_id, context_reads(keys), decode, op=Op.READ_WINDOW, is_separable=True)


class Leaving(NamedTuple):
    """The elements that leave the head of a window."""

    next_seq: int
    """The first seq of the window without them."""
    element_count: int
    moved: Sequence[bytes | int] = ()
    """Script arguments: the field that keeps the pinned messages among them, and their places; empty without them."""


def plan_leaving(context: Context, elements: Sequence[bytes], messages: Sequence[Message]) -> Leaving:
    """Plan how `messages`, the first of `context.messages`, leave the window. Every element before the next leaves."""
    first_seq, last_seq = context.first_seq, context.last_seq
    if not messages:
        return Leaving(first_seq, 0)
    following = context.messages[len(messages)].seq if len(messages) < len(context.messages) else last_seq + 1
    pinned = [message.seq for message in context.pinned if first_seq <= message.seq < following]
    count, *places = (place_of(seq, first_seq, last_seq, elements) for seq in (following, *pinned))
    return Leaving(following, count, [layout.pinned_field(pinned), *places] if pinned else [])


def prune(calls: SessionCalls, view: View, max_messages: int) -> Call[int] | None:
    """Build a prune of the oldest messages. Return None if there is nothing to drop.

    The call returns the number of dropped messages. 0 means that the session has changed since it was read.
    """
    keys, script, context = calls.keys, scripts.load("prune"), view.context
    messages = context.messages
    dropped = messages[: cut_before(messages, max(0, len(messages) - max_messages))]
    if not dropped:
        return None
    leaving = plan_leaving(context, view.elements, dropped)
    command = evalsha(
        script,
        (keys.messages, keys.state, keys.originals, keys.vectors),
        (
            context.epoch,
            context.first_seq,
            context.window_version or layout.NONE,
            leaving.next_seq,
            leaving.element_count,
            view.elements[leaving.element_count - 1],
            leaving.element_count - len(dropped),
            sum(message.tokens for message in dropped),
            nonce(),
            *leaving.moved,
        ),
    )
    return Call(keys.session_id, (command,), lambda reply: len(dropped) if reply else 0, script, op=Op.PRUNE)


def replacement(calls: SessionCalls, old: Message, new: Message | dict[str, Any]) -> Replacement:
    """Encode the message that replaces `old`. It is pinned if `old` is pinned.

    Raises:
        InvalidMessage: the new message cannot be stored.
        TooLarge: the new message exceeds `max_message_bytes`.
    """
    given = (new if isinstance(new, Message) else Message.from_openai(new)).mark_replaced()
    element, tokens, pinned = encode_with_pin(given, old.pinned, calls.count_tokens)
    check_size(calls.settings, element, calls.keys.session_id, "the replacement")
    given = given.with_pin(pinned)
    stored = Message.restored(given.to_openai(), given.beside, old.seq, tokens, old.stored_ms, old.epoch)
    return Replacement(stored, element)


def unpin(old: Message) -> Replacement:
    """Encode the message without its pin."""
    stored = old.with_pin(False)
    return Replacement(stored, encode_message(stored, lambda _: old.tokens)[0])


def replace(
    calls: SessionCalls,
    view: View,
    old: Message,
    changed: Replacement,
    kept: BlockChange = NO_BLOCK_CHANGE,
    last_seq: int | None = None,
) -> Call[Message | None]:
    """Build the replacement of a message.

    The call returns the new message, or None if the session has changed since it was read.

    `kept` is the change of the block of originals, if the message has left the window. `last_seq` is the last seq that
    the session must still have; None accepts any last seq.
    """
    keys, shard, script = calls.keys, calls.keys.shard, scripts.load("replace")
    new, before = changed.message, view.element(old)
    after = changed.element + before[-STAMP_BYTES:]
    fields: tuple[bytes | str, bytes | str] = (layout.NONE, layout.NONE)
    values = (before, after)
    if is_outside := old.seq < view.context.first_seq:
        fields, values = _replace_in_group(view.pinned_group(old), old.seq, after if new.pinned else None)
    more_bytes = len(after) * new.pinned - len(before) * old.pinned
    more_count = new.pinned - old.pinned
    pins = pins_argument(calls.settings, more_count, more_bytes) if old.pinned or new.pinned else layout.NONE
    command = evalsha(
        script,
        (keys.messages, keys.state, keys.originals, keys.vectors, shard.active, shard.overdue, shard.evictions),
        (
            keys.session,
            time_argument(calls.clock),
            append_limits(calls.settings).text,
            append_token(None),
            view.context.epoch,
            view.context.first_seq,
            layout.NONE if is_outside else view.place(old.seq),
            nonce(),
            *values,
            new.tokens * (not new.pinned) - old.tokens * (not old.pinned),
            more_count,
            pins,
            layout.NONE if last_seq is None else last_seq,
            *fields,
            *(kept._replace(dropped=f"{kept.dropped} b{old.seq}") if old.shortened else kept),
        ),
    )
    return Call(keys.session_id, (command,), lambda reply: new if reply else None, script, resend(7, 3), op=Op.REPLACE)


def _replace_in_group(
    group: Mapping[int, bytes], seq: int, after: bytes | None
) -> tuple[tuple[bytes | str, bytes | str], tuple[bytes, bytes]]:
    """Return the fields and the values of a group of pinned messages, before and after one of them changes.

    `after` is the new element; None removes the message from the group.
    """
    elements = {other: element if other != seq else after for other, element in group.items()}
    new_group = {other: element for other, element in elements.items() if element is not None}
    fields = (_pinned_field(group), _pinned_field(new_group))
    return fields, (b"".join(group.values()), b"".join(new_group.values()))


def encode_block_change(
    view: View, old: Message, changed: Replacement, block: Block, known: Dictionaries
) -> BlockChange:
    """Encode a block of originals again, with the replacement. A large block takes a second.

    `known` must contain the block's dictionary. An unreadable block stays unchanged.
    """
    with contextlib.suppress(Undecodable):  # the next turn that recalls it puts it into quarantine
        first_seq, elements = decode_block(*block, known)
        if first_seq <= old.seq < first_seq + len(elements):
            elements[old.seq - first_seq] = changed.element + view.element(old)[-STAMP_BYTES:]
            used = known.get(dictionary_of(block.stored) or 0)
            after, signature = encode_field(first_seq, elements, view.context.epoch, used, zone=view.context.zone)
            gone = [f"v{block_number(old.seq)}", *(replaced_fields(block.number) if is_merged(block.stored) else ())]
            return BlockChange(block.number, block.stored, after, signature, " ".join(gone))
    return NO_BLOCK_CHANGE


def _pinned_field(group: Mapping[int, bytes]) -> bytes | str:
    return layout.pinned_field(list(group)) if group else layout.NONE

"""The calls that take messages of a session away or change them: prune, pop, replace. No I/O.

Each is made of the session as it was read, and does nothing if that has changed since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redismem.context import Context
from redismem.events import Op
from redismem.formats.tool_groups import cut_before
from redismem.messages.decoding import GAP, split_elements
from redismem.messages.encoding import encode_message
from redismem.messages.message import STAMP_BYTES, Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import decode_block, dictionary_of
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import encode_fields
from redismem.protocol import layout, replies, scripts
from redismem.protocol.call import Call, evalsha
from redismem.protocol.clock import time_argument
from redismem.protocol.ids import append_token, nonce
from redismem.protocol.layout import PINNED
from redismem.protocol.session.append import append_limits, check_size, encode_as, more_pins, stored_as
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.pages import Block


class Changed(NamedTuple):
    """What comes in the place of a message: as it is stored, and its element without its stamp."""

    message: Message
    element: bytes


class KeptChange(NamedTuple):
    """For a script: how the change reads in the block of originals that the message stands in; none by default."""

    number: int | str = layout.NONE
    before: bytes = b""
    after: bytes = b""
    signature: bytes = b""


NOT_KEPT = KeptChange()


@dataclass(frozen=True, slots=True)
class View:
    """A session as it was read: its context, and the bytes of it."""

    context: Context
    fields: Mapping[bytes, bytes]
    elements: Sequence[bytes]

    def element(self, message: Message) -> bytes:
        """What is stored of a message of the context."""
        place = message.seq - self.context.first_seq
        return self.elements[place] if place >= 0 else self.moved(message)[message.seq]

    def moved(self, message: Message) -> dict[int, bytes]:
        """The elements of the pinned messages that left the window with this one, by their seqs."""
        for field in self.fields:
            if field.startswith(PINNED) and message.seq in (seqs := layout.pinned_seqs(field)):
                return dict(zip(seqs, split_elements(self.fields[field], len(seqs)), strict=True))
        raise KeyError(message.seq)


def window(calls: SessionCalls) -> Call[View | None]:
    """All of a session, None if there is none; by a script, so it is answered when memory has run out."""
    keys, script = calls.keys, scripts.load("read")

    def decode(reply: Sequence[Any]) -> View | None:
        fields, elements = replies.fields(reply[0]), reply[1]
        context = replies.context(keys.session_id, calls.settings.recent_limit, fields, elements)
        return View(context, fields, elements) if context.epoch else None

    command = evalsha(script, (keys.messages, keys.state), (0, -1))
    return Call(keys.session_id, (command,), decode, script, op=Op.READ_WINDOW)


def leaving(context: Context, messages: Sequence[Message]) -> tuple[int, list[Message]]:
    """How many elements go from the head of the window with these messages, and which pinned ones are among them.

    `messages`: the first ones of `context.messages`, one at least. Everything before the next one goes.
    """
    following = context.messages[len(messages)].seq if len(messages) < len(context.messages) else context.last_seq + 1
    return following - context.first_seq, [
        message for message in context.pinned if context.first_seq <= message.seq < following
    ]


def moved(context: Context, pinned: Sequence[Message]) -> list[bytes | int]:
    """For a script: the field in which these pinned messages stay, and their places in the window; nothing for none."""
    seqs = [message.seq for message in pinned]
    return [layout.pinned_field(seqs), *(seq - context.first_seq for seq in seqs)] if seqs else []


def prune(calls: SessionCalls, view: View, max_messages: int) -> Call[int] | None:
    """Drops the oldest messages of this window: how many, 0 if it has changed since. None: there is nothing to drop."""
    keys, script, context = calls.keys, scripts.load("prune"), view.context
    messages = context.messages
    dropped = messages[: cut_before(messages, max(0, len(messages) - max_messages))]
    if not dropped:
        return None
    count, pinned = leaving(context, dropped)
    command = evalsha(
        script,
        (keys.messages, keys.state, keys.originals, keys.vectors),
        (
            context.epoch,
            context.first_seq,
            context.window_version or layout.NONE,
            count,
            view.elements[count - 1],
            count - len(dropped),
            sum(message.tokens for message in dropped),
            nonce(),
            *moved(context, pinned),
        ),
    )
    return Call(keys.session_id, (command,), lambda reply: len(dropped) if reply else 0, script, op=Op.PRUNE)


def pop(calls: SessionCalls, view: View, popped: Sequence[Message]) -> Call[bool]:
    """Takes these newest messages back; False if the session has changed since."""
    keys, settings, script, context = calls.keys, calls.settings, scripts.load("pop"), view.context
    command = evalsha(
        script,
        (keys.messages, keys.state, keys.originals, keys.vectors, keys.shard.active, keys.shard.evictions),
        (
            keys.session,
            time_argument(calls.clock),
            settings.kept_ms,
            settings.max_window_count,
            append_token(None),
            context.epoch,
            context.last_seq,
            context.window_version or layout.NONE,
            view.elements[-1],
            nonce(),
            sum(message.tokens for message in popped),
            GAP,
            *(message.seq for message in popped),
        ),
    )
    return Call(keys.session_id, (command,), bool, script, op=Op.POP)


def replacement(calls: SessionCalls, old: Message, new: Message | dict[str, Any]) -> Changed:
    """Another message in the place of this one, pinned if the other was. Raises InvalidMessage, TooLarge."""
    element, tokens, pinned = encode_as(new, old.pinned, calls.count_tokens)
    check_size(calls.settings, element, calls.keys.session_id, "the replacement")
    given = new if isinstance(new, Message) else Message.from_openai(new)
    given = given.with_pin(pinned)
    stored = Message.restored(given.to_openai(), given.beside, old.seq, tokens, old.stored_ms, old.epoch)
    return Changed(stored, element)


def unpinned(old: Message) -> Changed:
    """The same message, not pinned."""
    stored = old.with_pin(False)
    return Changed(stored, encode_message(stored, lambda _: old.tokens)[0])


def replace(
    calls: SessionCalls, view: View, old: Message, changed: Changed, kept: KeptChange = NOT_KEPT
) -> Call[Message | None]:
    """Puts this in the place of the message: as it is stored, or None if the session has changed since.

    `kept`: if the message has left the window, and is among the originals.
    """
    keys, shard, script = calls.keys, calls.keys.shard, scripts.load("replace")
    new, before = changed.message, view.element(old)
    after = stored_as(calls.settings, changed.element) + before[-STAMP_BYTES:]
    fields: tuple[bytes | str, bytes | str] = (layout.NONE, layout.NONE)
    values = (before, after)
    if old.seq < view.context.first_seq:
        group = view.moved(old)
        others = {seq: each for seq, each in group.items() if new.pinned or seq != old.seq}
        renewed = {seq: after if seq == old.seq else each for seq, each in others.items()}
        fields = (_field_of(group), _field_of(renewed))
        values = (b"".join(group.values()), b"".join(renewed.values()))
    more_bytes = len(after) * new.pinned - len(before) * old.pinned
    command = evalsha(
        script,
        (keys.messages, keys.state, keys.originals, keys.vectors, shard.active, shard.overdue, shard.evictions),
        (
            keys.session,
            time_argument(calls.clock),
            append_limits(calls.settings),
            append_token(None),
            view.context.epoch,
            old.seq,
            nonce(),
            *values,
            new.tokens * (not new.pinned) - old.tokens * (not old.pinned),
            new.pinned - old.pinned,
            more_pins(calls.settings, new.pinned - old.pinned, more_bytes) if old.pinned or new.pinned else layout.NONE,
            *fields,
            *kept,
        ),
    )
    return Call(keys.session_id, (command,), lambda reply: new if reply else None, script, op=Op.REPLACE)


def kept_change(view: View, old: Message, changed: Changed, block: Block, known: Dictionaries) -> KeptChange:
    """How the change reads in this block of originals: to unpack and compress it takes a second if it is large.

    `known`: the block's dictionary is among them. A block that cannot be read stays as it is.
    """
    with contextlib.suppress(Undecodable):  # who reads it puts it into quarantine
        first_seq, elements = decode_block(*block, known)
        if first_seq <= old.seq < first_seq + len(elements):
            elements[old.seq - first_seq] = changed.element + view.element(old)[-STAMP_BYTES:]
            used = known.get(dictionary_of(block.stored) or 0)
            after, signature = encode_fields(first_seq, elements, view.context.epoch, used).values()
            return KeptChange(block.number, block.stored, after, signature)
    return NOT_KEPT


def _field_of(group: Mapping[int, bytes]) -> bytes | str:
    return layout.pinned_field(list(group)) if group else layout.NONE

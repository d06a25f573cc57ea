"""The oldest messages leave a window: prune and archive. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from redismem.context.context import Context
from redismem.events import Op
from redismem.formats.tool_groups import cut_before
from redismem.messages.gaps import place_of
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import (
    MERGED_BLOCKS,
    NO_DICTIONARIES,
    block_number,
    decode_block,
    first_seq_of,
    head_of,
)
from redismem.originals.dictionaries import Dictionaries, Dictionary
from redismem.originals.fields import encode_fields, merged_number, replaced_fields
from redismem.protocol import layout
from redismem.protocol.ids import nonce
from redismem.protocol.session.edits import Edit, View
from redismem.protocol.session.pages import Block

_NO_SEQ = 1 << 53
"""Greater than any seq."""


class Leaving(NamedTuple):
    """The elements that leave the head of a window."""

    next_seq: int
    """The first seq of the window without them."""
    element_count: int
    pinned: Mapping[bytes, bytes] = MappingProxyType({})
    """The field of the state that keeps the pinned messages among them; empty without them."""
    large_bytes: int = 0
    """The bytes of the large messages among them."""


def plan_leaving(context: Context, elements: Sequence[bytes], messages: Sequence[Message]) -> Leaving:
    """Plan how `messages`, the first of `context.messages`, leave the window. Every element before the next leaves."""
    first_seq, last_seq = context.first_seq, context.last_seq
    if not messages:
        return Leaving(first_seq, 0)
    following = context.messages[len(messages)].seq if len(messages) < len(context.messages) else last_seq + 1
    pinned = [message.seq for message in context.pinned if first_seq <= message.seq < following]
    count, *places = (place_of(seq, first_seq, last_seq, elements) for seq in (following, *pinned))
    kept = {layout.pinned_field(pinned): b"".join(elements[place] for place in places)} if pinned else {}
    return Leaving(following, count, kept, layout.large_bytes(elements[:count]))


class Begun(NamedTuple):
    """The blocks behind the window that messages extend when they leave it, empty by default."""

    blocks: Sequence[Block] = ()
    signatures: Mapping[int, bytes] = MappingProxyType({})
    dictionaries: Dictionaries = NO_DICTIONARIES


def blocks_to_extend(context: Context, elements: Sequence[bytes], messages: Sequence[Message]) -> range:
    """Return the numbers of the blocks that `messages`, the first of the window, may extend when they leave it.

    These are all blocks since the last merged one if the messages complete four, else the last of them. It may be
    full, but it may also be a merged block that a crash has left behind.
    """
    first_seq, next_seq = context.first_seq, plan_leaving(context, elements, messages).next_seq
    head, last = head_of(block_number(first_seq)), block_number(first_seq - 1)
    return range(head if _completes_four(first_seq, next_seq) else max(head, last), last + 1)


def _completes_four(first_seq: int, next_seq: int) -> bool:
    """True if a window that begins at `next_seq` instead of `first_seq` leaves four full blocks behind."""
    return next_seq >= first_seq_of(head_of(block_number(first_seq)) + MERGED_BLOCKS)


def encode_leaving(
    context: Context,
    elements: Sequence[bytes],
    messages: Sequence[Message],
    begun: Begun,
    dictionary: Dictionary | None = None,
) -> dict[bytes, bytes]:
    """Encode the blocks and signatures of `messages`, the first of the window, as fields of the originals.

    `begun` are the blocks that they may extend. `dictionary` compresses the new blocks. Raises Undecodable if a begun
    block that is partly filled cannot be read.
    """
    leaving = plan_leaving(context, elements, messages)
    first_seq = context.first_seq
    before = _elements_before(begun, first_seq, _completes_four(first_seq, leaving.next_seq))
    whole = {number: each for number, each in begun.signatures.items() if first_seq_of(number + 1) <= first_seq}
    leaving_elements = [*before, *elements[: leaving.element_count]]
    return encode_fields(first_seq - len(before), leaving_elements, context.epoch, dictionary, whole, context.zone)


def _elements_before(begun: Begun, first_seq: int, with_full: bool) -> list[bytes]:
    """Return the elements before a seq of the block that contains it; with the full blocks before it, if asked for.

    Raises Undecodable if the block that contains the seq cannot be read, or does not reach up to it.
    """
    before: list[bytes] = []
    for block in reversed(begun.blocks):
        stop_seq = first_seq - len(before)
        is_in_the_way = first_seq_of(block.numbers[-1] + 1) > first_seq
        if not (is_in_the_way or with_full):
            break
        try:
            block_first, elements = decode_block(*block, begun.dictionaries)
        except Undecodable:
            if is_in_the_way:
                raise
            break
        part = elements[: max(0, stop_seq - block_first)]
        if block_first + len(part) != stop_seq:
            if is_in_the_way:
                raise Undecodable("a block of originals does not reach up to the window")
            break
        before = part + before
    return before


def prune(view: View, dropped: Sequence[Message]) -> Edit:
    """Plan the removal of these messages, the first of the window, and of all originals."""
    edit = _plan(Op.PRUNE, view, dropped)
    edit.first_block, edit.bodies = 0, range(edit.next_seq, _NO_SEQ)
    edit.sets[layout.PRUNED] = nonce()
    return edit


def select_pruned(context: Context, max_messages: int) -> list[Message]:
    """Return the messages that go if `max_messages` stay; more stay if a tool call would otherwise lose its result."""
    messages = context.messages
    return messages[: cut_before(messages, max(0, len(messages) - max_messages))]


def decode_pruned(dropped: Sequence[Message], reply: Any) -> int:
    """Return the number of dropped messages from the reply to a prune; 0 means that the session has changed."""
    return len(dropped) if reply else 0


def archive(view: View, messages: Sequence[Message], originals: Mapping[bytes, bytes]) -> Edit:
    """Plan how `messages`, the first of the window, move into the originals: `originals` are from `encode_leaving`."""
    edit = _plan(Op.ARCHIVE, view, messages)
    if layout.WITH_ORIGINALS not in view.fields:  # older ones are of an earlier epoch, or end before the window
        edit.first_block, edit.bodies = 0, range(view.context.first_seq, _NO_SEQ)
    edit.originals = originals
    merged = merged_number(originals)
    edit.dropped = () if merged is None else replaced_fields(merged)
    edit.sets[layout.WITH_ORIGINALS] = b"1"
    edit.log = None
    return edit


def _plan(op: Op, view: View, messages: Sequence[Message]) -> Edit:
    leaving = plan_leaving(view.context, view.elements, messages)
    edit = Edit(op, leaving.next_seq, head_count=leaving.element_count, version=None)
    edit.seen = leaving.element_count - 1, view.elements[leaving.element_count - 1]
    edit.message_count, edit.tokens = -len(messages), -sum(message.tokens for message in messages)
    edit.sets |= leaving.pinned
    return edit

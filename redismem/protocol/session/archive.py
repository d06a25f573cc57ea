"""Calls that move the oldest messages of a window into the originals. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from redismem.context import Context
from redismem.events import Op
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
from redismem.originals.fields import encode_fields, merged_number
from redismem.protocol import layout, scripts
from redismem.protocol.call import Call, evalsha
from redismem.protocol.ids import append_token
from redismem.protocol.sendings import resend
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import View, plan_leaving
from redismem.protocol.session.pages import Block


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


def archive(
    calls: SessionCalls, view: View, messages: Sequence[Message], originals: Mapping[bytes, bytes]
) -> Call[bool]:
    """Build a call that archives `messages`, the first of the window. False means that the window has changed.

    `originals` are their fields, from `encode_leaving`.
    """
    keys, script, context = calls.keys, scripts.load("archive"), view.context
    leaving = plan_leaving(context, view.elements, messages)
    command = evalsha(
        script,
        (keys.messages, keys.state, keys.originals, keys.vectors),
        (
            append_token(None),
            context.epoch,
            context.first_seq,
            context.window_version or layout.NONE,
            leaving.next_seq,
            leaving.element_count,
            view.elements[leaving.element_count - 1],
            leaving.element_count - len(messages),
            sum(message.tokens for message in messages),
            layout.NONE if (merged := merged_number(originals)) is None else merged,
            len(leaving.moved),
            *leaving.moved,
            *(part for field in originals.items() for part in field),
        ),
    )
    return Call(keys.session_id, (command,), bool, script, resend(4, 0), op=Op.ARCHIVE)

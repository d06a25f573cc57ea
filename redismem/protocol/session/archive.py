"""Calls that move the oldest messages of a window into the originals. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redismem.context import Context
from redismem.events import Op
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, decode_block
from redismem.originals.dictionaries import Dictionaries, Dictionary
from redismem.originals.fields import encode_fields
from redismem.protocol import layout, scripts
from redismem.protocol.call import Call, evalsha
from redismem.protocol.ids import append_token
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import View, plan_leaving
from redismem.protocol.session.pages import Block


def is_block_begun(context: Context, with_originals: bool) -> bool:
    """True if the last block before the window is partly filled, so that the next messages extend it."""
    return with_originals and (context.first_seq - 1) % BLOCK_COUNT > 0


def encode_leaving(
    context: Context,
    elements: Sequence[bytes],
    messages: Sequence[Message],
    begun: Block | None,
    dictionaries: Dictionaries,
    dictionary: Dictionary | None = None,
) -> dict[bytes, bytes]:
    """Encode the blocks and signatures of `messages`, the first of the window, as fields of the originals.

    `begun` is the block to extend, and `dictionaries` must contain the dictionary it was compressed with. `dictionary`
    compresses the new blocks. Raises Undecodable if the begun block cannot be read.
    """
    leaving = plan_leaving(context, elements, messages)
    first_seq, leaving_elements = context.first_seq, list(elements[: leaving.element_count])
    if begun is not None:
        before = _elements_before(begun, first_seq, dictionaries)
        leaving_elements, first_seq = [*before, *leaving_elements], first_seq - len(before)
    return encode_fields(first_seq, leaving_elements, context.epoch, dictionary)


def _elements_before(block: Block, first_seq: int, dictionaries: Dictionaries) -> list[bytes]:
    """Return the elements of a block before this seq. Raises Undecodable if the block does not reach up to it."""
    block_first, elements = decode_block(*block, dictionaries)
    before = elements[: max(0, first_seq - block_first)]
    if block_first + len(before) != first_seq:
        raise Undecodable("a block of originals does not reach up to the window")
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
            len(leaving.moved),
            *leaving.moved,
            *(part for field in originals.items() for part in field),
        ),
    )
    return Call(keys.session_id, (command,), bool, script, op=Op.ARCHIVE)

"""Encode and edit blocks of originals for the machine's workers and users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from support.dictionaries import make_dictionary

from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number
from redismem.originals.dictionaries import Dictionaries, Dictionary
from redismem.protocol import layout
from redismem.protocol.call import Call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.queue.calls import Job
from redismem.protocol.session import forget, pages
from redismem.protocol.session.cuts import Cut, blocks_to_read, plan_cut
from redismem.protocol.session.edits import BlockChange, View
from redismem.protocol.session.forget import Kept
from redismem.protocol.session.leaving import Begun, blocks_to_extend, encode_leaving
from redismem.protocol.session.replacing import Replacement, encode_block_change

KNOWN: Dictionaries = {1: make_dictionary(1)}
"""The trained dictionaries of the namespace; every other commit uses one."""
Run = Callable[[Call[Any]], Any]


def original_fields(run: Run, keys: SessionKeys, job: Job, covered: list[Message]) -> dict[bytes, bytes]:
    """Return the original fields of a commit. A partial block that this worker cannot read is not its own."""
    dictionary = KNOWN[1] if job.attempts % 2 == job.context.first_seq % 2 else None
    return leaving_fields(run, keys, job, covered, job.with_originals, dictionary)


def leaving_fields(
    run: Run,
    keys: SessionKeys,
    read: Job | View,
    messages: Sequence[Message],
    with_originals: bool,
    dictionary: Dictionary | None = None,
) -> dict[bytes, bytes]:
    """Return the original fields of the first messages of a window as it was read."""
    numbers = blocks_to_extend(read.context, read.elements, messages) if with_originals else ()
    blocks, signatures = run(pages.read_for_merge(keys, numbers)) if numbers else ([], {})
    begun = Begun(blocks, signatures, KNOWN)
    try:
        return encode_leaving(read.context, read.elements, messages, begun, dictionary)
    except Undecodable:
        return encode_leaving(read.context, read.elements, messages, Begun(), dictionary)


def cut_in(run: Run, keys: SessionKeys, view: View, from_seq: int, most_count: int) -> Cut | None:
    """Return the change behind the window of a rewrite; None if it begins within the window."""
    if from_seq >= view.context.first_seq:
        return None
    numbers = blocks_to_read(view, from_seq, most_count)
    return plan_cut(view, from_seq, run(pages.blocks(keys, numbers)) if numbers else [], KNOWN)


def kept_blocks(run: Run, keys: SessionKeys, view: View, seqs: set[int]) -> dict[int, Kept | None]:
    """Return the blocks of originals that may contain these messages, decoded."""
    numbers = forget.blocks_to_read(view, seqs, {})
    blocks = run(pages.blocks(keys, numbers)) if numbers else []
    return dict.fromkeys(numbers) | forget.decode_all(view, blocks, KNOWN)


def block_change(run: Run, keys: SessionKeys, view: View, old: Message, changed: Replacement) -> BlockChange | None:
    """Return the change of a message in its block of originals, if the message has left the window."""
    if old.seq >= view.context.first_seq or layout.WITH_ORIGINALS not in view.fields:
        return None
    block = run(pages.block(keys, block_number(old.seq)))
    return None if block is None else encode_block_change(view, old, changed, block, KNOWN)

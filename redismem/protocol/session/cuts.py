"""Plan a rewrite that begins before the window: summaries and originals are cut to its seq. No I/O.

Messages that a removed summary covers before that seq come back into the window, from the originals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from redismem.context.results import Summary
from redismem.errors import NotInWindow, TooLarge
from redismem.messages.decoding import StoredMessages
from redismem.messages.gaps import gap_count
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import MERGED_COUNT, block_number, decode_block, dictionary_of, first_seq_of
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import encode_fields
from redismem.protocol import layout
from redismem.protocol.session.edits import View
from redismem.protocol.session.pages import Block
from redismem.settings.names import over_limit

NONE_FOUND: Mapping[int, bool] = MappingProxyType({})


@dataclass(slots=True)
class Cut:
    """The change of a session behind its window."""

    first_seq: int
    """The first seq of the window afterwards."""
    restored: Mapping[int, bytes] = field(default_factory=dict)
    """The messages that come back into the window, by seq."""
    messages: Sequence[Message] = ()
    """The same messages, decoded."""
    sets: dict[bytes, bytes] = field(default_factory=dict)
    """The fields of the state to set."""
    drops: list[bytes] = field(default_factory=list)
    """The fields of the state to remove."""
    block: int | None = None
    """The number of the first block of originals to remove or rewrite; None means that there are no originals."""
    originals: Mapping[bytes, bytes] = field(default_factory=dict)
    """The fields of that block, without the removed messages; several blocks if it was a merged one."""
    behind_count: int = 0
    """The messages that go although they have left the window, pinned ones included."""


def first_seq_after(view: View, from_seq: int) -> int:
    """Return the first seq of the window after a rewrite from a seq before it: that of a summary that covers it."""
    summary = _covering(view, from_seq)
    return from_seq if summary is None else summary.first_seq


def _covering(view: View, seq: int) -> Summary | None:
    return next((each for each in view.context.summaries if each.first_seq <= seq <= each.last_seq), None)


def _covered_seqs(view: View, summary: Summary) -> list[int] | None:
    """Return the seqs of the covered messages. None for a summary of summaries, which does not list messages."""
    ids = [id.removeprefix(f"{view.context.epoch}:") for id in summary.message_ids]
    return [int(id) for id in ids] if all(id.isdigit() for id in ids) else None


def blocks_to_count(view: View, from_seq: int) -> Sequence[int]:
    """Return the numbers of the blocks of originals that tell which seqs from one up to the window have a message.

    None are needed if every seq behind the window has a message, or if all messages go.
    """
    in_window = sum(map(gap_count, view.elements))
    if from_seq == 1 or layout.WITH_ORIGINALS not in view.fields or view.removed_count == in_window:
        return ()
    return blocks_behind(view, from_seq)


def find_messages(blocks: Sequence[Block], known: Dictionaries) -> dict[int, bool]:
    """Return True for each seq of these blocks that has a message, and False for one that has none.

    In a block that cannot be read, each seq counts as a message.
    """
    found = dict[int, bool]()
    for block in blocks:
        try:
            seq, elements = decode_block(*block, known)
            found |= {at: not gap_count(element) for at, element in enumerate(elements, seq)}
        except Undecodable:
            found |= dict.fromkeys(range(first_seq_of(block.numbers[0]), first_seq_of(block.numbers[-1] + 1)), True)
    return found


def count_behind(view: View, from_seq: int, found: Mapping[int, bool]) -> int:
    """Return the number of messages from a seq up to the window. `found` is what the originals tell of these seqs.

    Where no originals are left, the lists of the summaries tell. Without a list, a seq counts as a message, as long as
    the session has so many.
    """
    context, span = view.context, range(from_seq, view.context.first_seq)
    seqs = set(span)
    for summary in context.summaries:
        covered = _covered_seqs(view, summary)
        if covered is not None:
            seqs.difference_update(set(range(summary.first_seq, summary.last_seq + 1)).difference(covered))
    seqs.difference_update(seq for seq, is_message in found.items() if not is_message)
    seqs.update(seq for seq, is_message in found.items() if is_message and seq in span)
    seqs.update(message.seq for message in context.pinned if message.seq in span)
    window_count = len(view.elements) - sum(map(bool, map(gap_count, view.elements)))
    before_count = sum(message.seq < from_seq for message in context.pinned)
    return min(len(seqs), max(0, context.total_messages - window_count - before_count))


def blocks_to_read(view: View, from_seq: int, most_count: int) -> Sequence[int]:
    """Return the numbers of the blocks of originals that the cut needs.

    Raises:
        NotInWindow: messages would have to come back, but the session keeps no originals.
        TooLarge: more than `most_count` messages would come back.
    """
    first_seq, session_id = first_seq_after(view, from_seq), view.context.session_id
    if layout.WITH_ORIGINALS not in view.fields:
        if first_seq < from_seq:
            raise NotInWindow(f"a summary covers seq {from_seq}, and the session keeps no originals", session_id)
        return ()
    if from_seq - first_seq > most_count:
        over = over_limit("max_window_count", most_count)
        raise TooLarge(f"up to {from_seq - first_seq} messages would come back, {over}", session_id)
    if first_seq == from_seq and (first_seq - 1) % MERGED_COUNT == 0:
        return ()  # whole blocks go
    return range(block_number(first_seq), block_number(max(from_seq - 1, first_seq)) + 1)


def blocks_behind(view: View, from_seq: int) -> Sequence[int]:
    """Return the numbers of the blocks of originals with the messages from a seq up to the window."""
    return range(block_number(from_seq), block_number(view.context.first_seq - 1) + 1)


def check_readable(view: View, from_seq: int, blocks: Sequence[Block], known: Dictionaries) -> None:
    """Check that the originals have every message from a seq up to the window that a summary covers.

    Raises:
        NotInWindow: an original is missing or cannot be read, so nobody can tell what would be removed.
    """
    seqs: set[int] = set()
    for block in blocks:
        with contextlib.suppress(Undecodable, LookupError):
            seq, part = decode_block(*block, known)
            seqs.update(range(seq, seq + len(part)))
    for summary in view.context.summaries:
        if not seqs.issuperset(range(max(from_seq, summary.first_seq), summary.last_seq + 1)):
            text = f"summaries cover the messages from seq {from_seq} on, and originals are missing or unreadable"
            raise NotInWindow(text, view.context.session_id)


def plan_cut(
    view: View, from_seq: int, blocks: Sequence[Block], known: Dictionaries, found: Mapping[int, bool] = NONE_FOUND
) -> Cut:
    """Plan the cut. `blocks` are the existing blocks of those to read, and `known` has their dictionaries.

    `found` is what the blocks to count tell.

    Raises:
        NotInWindow: a message that would have to come back cannot be read.
    """
    try:
        cut = _plan(view, from_seq, blocks, known)
        cut.behind_count = count_behind(view, from_seq, found)
        return cut
    except (Undecodable, LookupError):
        raise NotInWindow(
            f"the originals of the summary that covers seq {from_seq} cannot be read", view.context.session_id
        ) from None


def _plan(view: View, from_seq: int, blocks: Sequence[Block], known: Dictionaries) -> Cut:
    cut = Cut(first_seq_after(view, from_seq))
    first_seq, epoch = cut.first_seq, view.context.epoch
    number = block_number(first_seq)
    elements: dict[int, bytes] = {}
    seqs: set[int] = set()
    for block in blocks:
        seq, part = decode_block(*block, known)
        seqs.update(range(seq, seq + len(part)))
        elements |= {at: element for at, element in enumerate(part, seq) if not gap_count(element)}
        if seq < first_seq and block_number(first_seq) in block.numbers:
            number = block.number
            dictionary = known.get(dictionary_of(block.stored) or 0)
            cut.originals = encode_fields(seq, part[: first_seq - seq], epoch, dictionary, zone=view.context.zone)
    _cut_pinned(view, cut, elements)
    restored = {seq: elements[seq] for seq in sorted(elements) if first_seq <= seq < from_seq}
    _check_restored(view, from_seq, restored, seqs)
    cut.restored, cut.messages = restored, StoredMessages(list(restored.values()), 0, epoch, list(restored)).messages()
    kept = [summary for summary in view.context.summaries if summary.last_seq < first_seq]
    cut.sets[layout.SUMMARIES_COUNT] = b"%d" % len(kept)
    cut.drops += [layout.SUMMARY + b"%d" % each.first_seq for each in view.context.summaries if each not in kept]
    cut.drops += [layout.SKETCH, layout.COMMITTED]
    if layout.WITH_ORIGINALS in view.fields:
        cut.block = number
        cut.drops += [layout.WITH_ORIGINALS] if first_seq == 1 else []
    return cut


def _cut_pinned(view: View, cut: Cut, elements: dict[int, bytes]) -> None:
    """Take the pinned messages of the cut range out of their fields, and put those that come back into `elements`."""
    for name in [name for name in view.fields if name.startswith(layout.PINNED)]:
        group = view.pinned_elements(name)
        left = {seq: element for seq, element in group.items() if seq < cut.first_seq}
        if left != group:
            cut.drops.append(name)
            elements |= group
            if left:
                cut.sets[layout.pinned_field(list(left))] = b"".join(left.values())


def _check_restored(view: View, from_seq: int, restored: Mapping[int, bytes], seqs: Container[int]) -> None:
    """Check that all messages that the removed summary covers before `from_seq` have been read; `seqs` are in blocks.

    Raises:
        LookupError: a message is missing, or may be.
    """
    summary = _covering(view, from_seq)
    if summary is None or summary.first_seq == from_seq:
        return
    covered = _covered_seqs(view, summary)
    if covered is not None:
        is_whole = all(seq in restored for seq in covered if seq < from_seq)
    else:  # a seq that is in no block may have been a message
        is_whole = all(seq in seqs for seq in range(summary.first_seq, from_seq))
    if not is_whole:
        raise LookupError

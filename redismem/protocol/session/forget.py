"""Plan the removal of single messages. No I/O.

A message may be in the window, among the pinned messages that have left it, in a block of originals, and in the text of
a summary. The call does nothing if one of these has changed since it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from redismem.context.results import Summary
from redismem.errors import NotInWindow
from redismem.events import Op
from redismem.formats.tool_groups import add_groups
from redismem.messages.decoding import StoredMessages
from redismem.messages.gaps import encode_gap, gap_count, last_seqs
from redismem.messages.message import STAMP_BYTES, Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_parts, dictionary_of, is_merged
from redismem.originals.dictionaries import Dictionaries, Dictionary
from redismem.originals.fields import encode_field, replaced_fields
from redismem.protocol import layout
from redismem.protocol.session.edits import BlockChange, Edit, Replaced, View
from redismem.protocol.session.pages import Block

_NEIGHBOURS_COUNT = 2
"""The blocks on both sides of a message that may contain the rest of its tool call."""


class Kept(NamedTuple):
    """A decoded block of originals, by itself or as part of a merged one."""

    block: Block
    """The block as stored."""
    first_seq: int
    elements: Sequence[bytes]
    dictionary: Dictionary | None

    @property
    def messages(self) -> dict[int, bytes]:
        """The elements that are no gaps, by seq."""
        return {seq: each for seq, each in enumerate(self.elements, self.first_seq) if not gap_count(each)}


Blocks = Mapping[int, Kept | None]
"""The blocks that were read, by number; None for a block that does not exist."""


def decode_kept(view: View, block: Block, known: Dictionaries) -> dict[int, Kept]:
    """Decode a stored block of originals, and return each block in it by number. `known` must contain its dictionary.

    Raises:
        NotInWindow: the block cannot be read, so nobody knows which messages are in it.
    """
    try:
        parts = decode_parts(*block, known)
        for first_seq, elements in parts.values():
            StoredMessages(elements, first_seq, "")
    except Undecodable:
        number = f"block {block.number} of the originals"
        raise NotInWindow(f"cannot forget: {number} cannot be read", view.context.session_id) from None
    dictionary = known.get(dictionary_of(block.stored) or 0)
    return {number: Kept(block, *part, dictionary) for number, part in parts.items()}


def decode_all(view: View, blocks: Sequence[Block], known: Dictionaries) -> dict[int, Kept]:
    """Decode blocks of originals, by number. Raises NotInWindow."""
    return {number: kept for block in blocks for number, kept in decode_kept(view, block, known).items()}


def blocks_to_read(view: View, seqs: Set[int], blocks: Blocks) -> list[int]:
    """Return the numbers of further blocks that may contain these messages, or the rest of their tool calls."""
    if layout.WITH_ORIGINALS not in view.fields:
        return []
    numbers = {block_number(seq) for seq in seqs}
    near = {each for number in numbers for each in range(number - _NEIGHBOURS_COUNT, number + _NEIGHBOURS_COUNT + 1)}
    return sorted(each for each in near if each not in blocks and 0 <= each <= block_number(view.context.last_seq))


def select(view: View, blocks: Blocks, seqs: Set[int]) -> set[int]:
    """Return those of these seqs that have a message, and the seqs of all messages of the same tool calls."""
    selected: set[int] = set()
    for run in _runs(view, blocks):
        chosen = [at for at, seq in enumerate(run) if seq in seqs]
        if chosen:
            order = list(run)
            messages = StoredMessages(list(run.values()), 0, view.context.epoch, order).messages()
            selected.update(order[at] for at in add_groups(messages, chosen))
    return selected


def _runs(view: View, blocks: Blocks) -> Iterator[dict[int, bytes]]:
    """Yield runs of messages between which none is missing. Over a hole, an id may belong to another tool call."""
    pinned = _pinned_outside(view)
    run: dict[int, bytes] = {}
    numbers = [number for number, block in sorted(blocks.items()) if block is not None]
    last = block_number(view.context.first_seq - 1)
    for number in numbers:
        if run and number - 1 not in numbers:
            yield run
            run = {}
        if (kept := blocks[number]) is not None:
            run |= {seq: pinned.pop(seq, element) for seq, element in kept.messages.items()}
    if run and last not in numbers:
        yield run
        run = {}
    # A message of the window may also be in a block, and the one in the window counts.
    yield dict(sorted((run | window_messages(view)).items()))
    yield from ({seq: element} for seq, element in pinned.items())


def window_messages(view: View) -> dict[int, bytes]:
    """Return the elements of the window that are no gaps, by seq. Raises Undecodable."""
    seqs = last_seqs(view.elements, view.context.last_seq)
    return {seq: each for seq, each in zip(seqs, view.elements, strict=True) if not gap_count(each)}


def _pinned_outside(view: View) -> dict[int, bytes]:
    """Return the pinned messages that have left the window, by seq."""
    groups = [view.pinned_elements(name) for name in view.fields if name.startswith(layout.PINNED)]
    return {seq: element for group in groups for seq, element in group.items()}


def covering(view: View, blocks: Blocks, seqs: Set[int], selected: Set[int]) -> dict[Summary, set[int]]:
    """Return the summaries that cover one of the messages, with the seqs that each covers.

    `seqs` are those of the caller. A seq without a message counts unless it is known to have none: without originals, a
    summary may still tell of it.
    """
    read = [range(kept.first_seq, kept.first_seq + len(kept.elements)) for kept in blocks.values() if kept]
    unknown = {seq for seq in seqs if seq < view.context.first_seq and not any(seq in span for span in read)}
    covered = {each: _covered(view, each, selected | unknown) for each in view.context.summaries}
    return {summary: found for summary, found in covered.items() if found}


def _covered(view: View, summary: Summary, seqs: Set[int]) -> set[int]:
    """Return the seqs that a summary covers, or may cover: a summary of summaries does not list the messages."""
    ids = _listed_ids(view, summary)
    return {seq for seq in seqs if summary.first_seq <= seq <= summary.last_seq and (ids is None or str(seq) in ids)}


def _listed_ids(view: View, summary: Summary) -> set[str] | None:
    """Return the seqs of the messages that a summary lists; None for a summary of summaries."""
    ids = {id.removeprefix(f"{view.context.epoch}:") for id in summary.message_ids}
    return ids if all(id.isdigit() for id in ids) else None


def listed_in(view: View, covering: Mapping[Summary, Set[int]]) -> set[int]:
    """Return those of the covered seqs that were messages for certain, because their summary lists them."""
    listed = [seqs for summary, seqs in covering.items() if _listed_ids(view, summary) is not None]
    return set[int]().union(*listed)


def ids_without(summary: Summary, seqs: Set[int], epoch: str) -> tuple[str, ...]:
    """Return the ids of the messages that a summary covers, without these messages."""
    gone = {str(seq) for seq in seqs}
    return tuple(id for id in summary.message_ids if id.removeprefix(f"{epoch}:") not in gone)


def left_of(summary: Summary, blocks: Blocks, selected: Set[int], epoch: str) -> list[Message]:
    """Return the originals that a summary covers, without the messages that go and without pinned ones."""
    span = range(summary.first_seq, summary.last_seq + 1)
    left = {
        seq: element
        for _, kept in sorted(blocks.items())
        for seq, element in (kept.messages if kept else {}).items()
        if seq in span and seq not in selected
    }
    messages = StoredMessages(list(left.values()), 0, epoch, list(left)).messages()
    return [message for message in messages if not message.pinned]


def forget(
    view: View,
    selected: Set[int],
    blocks: Blocks,
    summaries: Mapping[Summary, Summary | None],
    listed: Set[int] = frozenset(),
) -> Edit:
    """Plan the removal of these messages. A large block takes a second.

    `blocks` must include every block with one of them. `summaries` has the summary that replaces each one that covers
    them; None removes it. `listed` are the messages that these summaries list, with or without an original.
    """
    edit = Edit(Op.FORGET, view.context.first_seq, if_summaries=True, log="lost")
    edit.drops.append(layout.SKETCH)  # as a whole: the words of one message cannot be taken out
    edit.drops.append(layout.TITLE)  # it may tell of the message
    edit.replaced = dict(_change_window(edit, view, selected))
    _change_pinned(edit, view, selected)
    edit.blocks = list(_change_blocks(view, selected, blocks))
    _change_summaries(edit, view, summaries)
    if removed := selected | listed:
        edit.sets[layout.REMOVED] = view.removed_field(len(removed))
    if layout.counters(view.fields[layout.COUNTERS]).has_bodies:
        edit.dropped = [f"b{seq}" for seq in sorted(selected)]
    return edit


def _change_window(edit: Edit, view: View, selected: Set[int]) -> Iterator[tuple[int, Replaced]]:
    """Yield the elements that change, by place: gaps take the place of messages, and become one with those beside."""
    messages = {message.seq: message for message in (*view.context.pinned, *view.context.messages)}
    run: list[int] = []
    is_changed, seqs_count = False, 0
    seqs = last_seqs(view.elements, view.context.last_seq)
    for place, (seq, element) in enumerate(zip([*seqs, 0], [*view.elements, b""], strict=True)):
        gap = gap_count(element)
        goes = element != b"" and not gap and seq in selected
        if gap or goes:
            run.append(place)
            is_changed, seqs_count = is_changed or goes, seqs_count + (gap or 1)
            if goes and messages[seq].pinned:
                edit.pinned_count -= 1
                edit.pinned_bytes -= len(element)
            elif goes:
                edit.message_count -= 1
                edit.tokens -= messages[seq].tokens
            continue
        if is_changed:
            new = encode_gap(seqs_count) + view.elements[run[0]][-STAMP_BYTES:]
            yield from ((at, Replaced(view.elements[at], new if at == run[0] else b"")) for at in run)
        run, is_changed, seqs_count = [], False, 0


def _change_pinned(edit: Edit, view: View, selected: Set[int]) -> None:
    """Take messages out of the fields of pinned messages that have left the window."""
    for name in [name for name in view.fields if name.startswith(layout.PINNED)]:
        group = view.pinned_elements(name)
        left = {seq: element for seq, element in group.items() if seq not in selected}
        if len(left) < len(group):
            edit.drops.append(name)
            edit.pinned_count -= len(group) - len(left)
            edit.pinned_bytes -= len(view.fields[name]) - sum(map(len, left.values()))
            edit.sets |= {layout.pinned_field(list(left)): b"".join(left.values())} if left else {}


def _change_blocks(view: View, selected: Set[int], blocks: Blocks) -> Iterator[BlockChange]:
    """Encode the blocks again, with gaps in place of messages. A block without a message goes."""
    changed = {number: kept for number, kept in blocks.items() if kept and not selected.isdisjoint(kept.messages)}
    for block in dict.fromkeys(kept.block for kept in changed.values()):
        parts = [kept for number in block.numbers if (kept := blocks.get(number))]
        first_seq = parts[0].first_seq
        elements = [
            encode_gap(1) + element[-STAMP_BYTES:] if seq in selected else element
            for seq, element in enumerate([element for kept in parts for element in kept.elements], first_seq)
        ]
        new = (b"", b"")
        if not all(map(gap_count, elements)):
            new = encode_field(first_seq, elements, view.context.epoch, parts[0].dictionary, zone=view.context.zone)
        gone = [f"v{number}" for number in block.numbers if number in changed]
        # A crash may have left blocks beside the merged block that contains them.
        gone += replaced_fields(block.number) if is_merged(block.stored) else []
        yield BlockChange(block.number, block.stored, *new, gone)


def _change_summaries(edit: Edit, view: View, summaries: Mapping[Summary, Summary | None]) -> None:
    for old, new in summaries.items():
        name = layout.SUMMARY + b"%d" % old.first_seq
        if new is None:
            edit.drops.append(name)
        else:
            edit.sets[name] = new.encode()
    if summaries:
        count = len(view.context.summaries) - sum(new is None for new in summaries.values())
        edit.sets[layout.SUMMARIES_COUNT] = b"%d" % count
        edit.drops.append(layout.COMMITTED)

"""The end of a session is replaced: pop and rewrite. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redismem.context.results import Receipt
from redismem.errors import NotInWindow
from redismem.events import Op
from redismem.messages.coercion import Shape
from redismem.messages.gaps import fill_gaps, gap_count, last_seqs
from redismem.messages.message import STAMP_BYTES, Message
from redismem.messages.values import Undecodable
from redismem.protocol import layout, replies
from redismem.protocol.ring import NAME_BYTES
from redismem.protocol.session import append_ids
from redismem.protocol.session.append import create_token
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.cuts import Cut
from redismem.protocol.session.edits import Edit, View


class NewMessages(NamedTuple):
    """The messages that a rewrite appends, encoded once for all its attempts."""

    token: bytes
    elements: Sequence[bytes] = ()
    """The elements without their stamps."""
    tokens: int = 0
    """The tokens of the messages that are not pinned."""
    pinned_count: int = 0
    pinned_bytes: int = 0

    @property
    def seqs_count(self) -> int:
        """The number of seqs that the rewrite takes: one if it has no messages."""
        return max(1, len(self.elements))


def encode(calls: SessionCalls, messages: Sequence[Message | Shape], id: str | None) -> NewMessages:
    """Encode the messages of a rewrite.

    Raises:
        InvalidMessage: a message or the id is invalid.
        TooLarge: a message or the batch exceeds its limit.
    """
    return NewMessages(create_token(calls.sender, id, calls.keys.session_id), *calls.encode_messages(messages))


def pop(view: View, popped: Sequence[Message]) -> Edit:
    """Plan a pop of the newest messages."""
    gone, from_seq = {message.seq for message in popped}, popped[0].seq
    kept_count, elements = _end(view, from_seq, lambda seq: seq not in gone, 1)
    return _plan(Op.POP, view, from_seq, popped, kept_count, elements)


def pop_exactly(view: View, popped: Sequence[Message], cut: Cut | None) -> Edit:
    """Plan a pop of everything from the first of these messages on.

    `cut` is the change behind the window, if the first message is before it.
    """
    return _plan_from(Op.POP, view, popped[0].seq, NewMessages(b""), cut)


def rewrite(view: View, from_seq: int, new: NewMessages, cut: Cut | None = None) -> Edit:
    """Plan the replacement of everything from a seq on.

    `cut` is the change behind the window, if the seq is before it.

    Raises:
        NotInWindow: the seq was never given.
    """
    context = view.context
    if from_seq > context.last_seq + 1:
        text = f"cannot rewrite from seq {from_seq}: the last seq is {context.last_seq}"
        raise NotInWindow(text, context.session_id)
    edit = _plan_from(Op.REWRITE, view, from_seq, new, cut)
    edit.token = new.token
    return edit


def decode_receipt(session_id: str, new: NewMessages, reply: Any) -> Receipt | None:
    """Return the receipt of a rewrite from the reply to its edit; None means that the session has changed."""
    return replies.receipt(session_id, new.seqs_count, reply, token=new.token) if reply else None


def _plan_from(op: Op, view: View, from_seq: int, new: NewMessages, cut: Cut | None) -> Edit:
    """Plan the replacement of everything from a seq on; without new messages, the edit takes one seq itself."""
    context, own_count = view.context, int(not new.elements)
    removed = [message for message in (*context.pinned, *context.messages) if message.seq >= from_seq]
    if cut is None:
        edit = _plan(
            op, view, from_seq, removed, *_end(view, from_seq, lambda _: False, own_count), own_count=own_count
        )
    else:
        elements = fill_gaps(cut.restored, cut.first_seq, context.last_seq + own_count, _stamp(view))
        behind_count = max(0, cut.behind_count - sum(message.seq < context.first_seq for message in removed))
        edit = _plan(op, view, from_seq, removed, 0, elements, behind_count, own_count)
        _add_cut(edit, cut)
    edit.new, edit.seqs_count = new.elements, new.seqs_count
    edit.message_count += len(new.elements) - new.pinned_count
    edit.tokens += new.tokens
    edit.pinned_count += new.pinned_count
    edit.pinned_bytes += new.pinned_bytes
    return edit


def _plan(
    op: Op,
    view: View,
    from_seq: int,
    removed: Sequence[Message],
    kept_count: int,
    elements: Sequence[bytes],
    behind_count: int = 0,
    own_count: int = 1,
) -> Edit:
    """Plan the removal of these messages, and of `behind_count` others that have left the window.

    The first `kept_count` elements of the window stay, and `elements` follow. `own_count` seqs are of the edit itself.
    """
    edit = Edit(op, view.context.first_seq, if_last_seq=True, is_use=True, seqs_count=1)
    edit.seen = -1, view.elements[-1] if view.elements else b""
    edit.kept_count, edit.pushed, edit.bodies = kept_count, elements, range(from_seq)
    unpinned = [message for message in removed if not message.pinned]
    pinned = [view.element(message) for message in removed if message.pinned]
    edit.message_count, edit.tokens = -len(unpinned), -_tokens(unpinned)
    edit.pinned_count, edit.pinned_bytes = -len(pinned), -sum(map(len, pinned))
    if removed_count := len(removed) + behind_count + own_count:
        edit.sets[layout.REMOVED] = view.removed_field(removed_count)
    return edit


def _add_cut(edit: Edit, cut: Cut) -> None:
    """Add the change behind the window."""
    restored = [message for message in cut.messages if not message.pinned]
    edit.next_seq, edit.first_block, edit.originals, edit.if_summaries = cut.first_seq, cut.block, cut.originals, True
    edit.message_count += len(restored)
    edit.tokens += _tokens(restored)
    edit.sets |= cut.sets
    edit.drops += cut.drops


def find_receipt(view: View, new: NewMessages) -> Receipt | None:
    """Return the receipt of an earlier append or rewrite with this id; None if the session remembers none."""
    last_seq = view.context.last_seq
    try:
        appends = append_ids.decode_appends(view.fields)
    except Undecodable:  # the script looks, too
        return None
    for name, count in reversed(appends):
        if name == new.token[:NAME_BYTES]:
            epoch = view.context.epoch
            return Receipt(last_seq - count + 1, last_seq, last_seq, False, True, epoch=epoch, newest_append=name)
        last_seq -= count
    return None


def _end(view: View, from_seq: int, stays: Callable[[int], bool], own_count: int) -> tuple[int, list[bytes]]:
    """Return the number of elements before a seq, and the elements that follow them: messages that stay, and gaps.

    A gap directly before the seq becomes part of the first new gap. `own_count` more seqs end in the last gap.
    """
    place = view.place(from_seq)
    place -= place > 0 and gap_count(view.elements[place - 1]) > 0
    last_seq, elements = view.context.last_seq, view.elements[place:]
    seqs = last_seqs(elements, last_seq)
    first_seq = seqs[0] + 1 - (gap_count(elements[0]) or 1) if elements else last_seq + 1
    left = {seq: element for seq, element in zip(seqs, elements, strict=True) if stays(seq) and not gap_count(element)}
    return place, fill_gaps(left, first_seq, last_seq + own_count, _stamp(view))


def _stamp(view: View) -> bytes:
    """Return the newest stamp of the window; if the window is empty, the session's last activity."""
    if view.elements:
        return view.elements[-1][-STAMP_BYTES:]
    return b"\xcf" + layout.counters(view.fields[layout.COUNTERS]).active_ms.to_bytes(8, "big")


def _tokens(messages: Sequence[Message]) -> int:
    return sum(message.tokens for message in messages)

"""Calls that replace the end of a session: pop and rewrite. No I/O.

Each call is built from a read of the session, and does nothing if the session has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from redismem.context import Receipt
from redismem.errors import NotInWindow
from redismem.events import Op
from redismem.messages.coercion import Shape
from redismem.messages.gaps import fill_gaps, gap_count, last_seqs
from redismem.messages.message import STAMP_BYTES, Message
from redismem.messages.values import Undecodable
from redismem.protocol import layout, replies, scripts
from redismem.protocol.appends import append_limits, pins_argument
from redismem.protocol.call import Call, evalsha
from redismem.protocol.clock import time_argument
from redismem.protocol.ids import append_token, nonce
from redismem.protocol.ring import NAME_BYTES
from redismem.protocol.sendings import resend
from redismem.protocol.session import append_ids
from redismem.protocol.session.append import create_token
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.cuts import Cut, count_behind
from redismem.protocol.session.edits import View

T = TypeVar("T")


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
    return NewMessages(create_token(id, calls.keys.session_id), *calls.encode_messages(messages))


class Ending(NamedTuple):
    """The end of a session after a pop or a rewrite, before the new messages."""

    kept_count: int
    """The elements at the head of the window that stay."""
    elements: Sequence[bytes]
    """The stamped elements that follow them: pinned messages and gaps."""
    removed: Sequence[Message]
    """The messages that do not stay."""
    removed_count: int
    """The seqs that have no message any more."""
    from_seq: int
    """The first seq whose message does not stay."""
    cut: Cut | None = None
    """The change behind the window; None for a rewrite within it."""


def pop(calls: SessionCalls, view: View, popped: Sequence[Message]) -> Call[bool]:
    """Build a pop of the newest messages. False means that the session has changed since it was read."""
    removed = {message.seq for message in popped}
    ending = Ending(
        *_end(view, popped[0].seq, lambda seq: seq not in removed, 1), popped, len(popped) + 1, popped[0].seq
    )
    return _call(calls, view, ending, NewMessages(append_token(None)), bool, Op.POP)


def pop_exactly(calls: SessionCalls, view: View, popped: Sequence[Message], cut: Cut | None) -> Call[bool]:
    """Build a pop of everything from the first of these messages on. False means that the session has changed.

    `cut` is the change behind the window, if the first message is before it.
    """
    ending = _ending(view, popped[0].seq, 1, cut)
    return _call(calls, view, ending, NewMessages(append_token(None)), bool, Op.POP)


def rewrite(
    calls: SessionCalls, view: View, from_seq: int, new: NewMessages, cut: Cut | None = None
) -> Call[Receipt | None]:
    """Build the replacement of everything from a seq on. None means that the session has changed since it was read.

    `cut` is the change behind the window, if the seq is before it.

    Raises:
        NotInWindow: the seq was never given.
    """
    context, session_id = view.context, calls.keys.session_id
    if from_seq > context.last_seq + 1:
        raise NotInWindow(f"cannot rewrite from seq {from_seq}: the last seq is {context.last_seq}", session_id)
    decode = partial(_decode_receipt, session_id, new)
    return _call(calls, view, _ending(view, from_seq, int(not new.elements), cut), new, decode, Op.REWRITE)


def _ending(view: View, from_seq: int, own_count: int, cut: Cut | None) -> Ending:
    """Return the end of a session without everything from a seq on. The change itself takes `own_count` seqs."""
    context = view.context
    removed = [message for message in (*context.pinned, *context.messages) if message.seq >= from_seq]
    if cut is None:
        return Ending(*_end(view, from_seq, lambda _: False, own_count), removed, len(removed) + own_count, from_seq)
    elements = fill_gaps(cut.restored, cut.first_seq, context.last_seq + own_count, _stamp(view))
    in_window = [message for message in removed if message.seq >= context.first_seq]
    return Ending(0, elements, removed, count_behind(view, from_seq) + len(in_window) + own_count, from_seq, cut)


def _decode_receipt(session_id: str, new: NewMessages, reply: Any) -> Receipt | None:
    return replies.receipt(session_id, new.seqs_count, reply, token=new.token) if reply else None


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


def _note_removed(view: View, ending: Ending) -> Cut:
    """Return the change behind the window, with the number of seqs that have no message any more."""
    cut = ending.cut or Cut(view.context.first_seq)
    if ending.removed_count:
        cut.changes[layout.REMOVED] = view.removed_field(ending.removed_count)
    return cut


def _tokens(messages: Sequence[Message]) -> int:
    return sum(message.tokens for message in messages)


def _call(
    calls: SessionCalls, view: View, ending: Ending, new: NewMessages, decode: Callable[[Any], T], op: Op
) -> Call[T]:
    keys, shard, context, script = calls.keys, calls.keys.shard, view.context, scripts.load("rewrite")
    cut = _note_removed(view, ending)
    pinned = [view.element(message) for message in ending.removed if message.pinned]
    removed, restored = ([each for each in part if not each.pinned] for part in (ending.removed, cut.messages))
    counted_count = len(context.messages) - len(removed) + len(restored) + len(new.elements) - new.pinned_count
    length = ending.kept_count + len(ending.elements) + len(new.elements)
    tokens = layout.counters(view.fields[layout.COUNTERS]).tokens + new.tokens + _tokens(restored) - _tokens(removed)
    hidden = context.last_seq + new.seqs_count - cut.first_seq + 1 - length
    pins = pins_argument(calls.settings, new.pinned_count - len(pinned), new.pinned_bytes - sum(map(len, pinned)))
    command = evalsha(
        script,
        (keys.messages, keys.state, keys.originals, keys.vectors, shard.active, shard.overdue, shard.evictions),
        (
            keys.session,
            append_limits(calls.settings).text,
            time_argument(calls.clock),
            new.token,
            context.epoch,
            context.first_seq,
            context.last_seq,
            context.window_version or layout.NONE,
            view.elements[-1] if view.elements else b"",
            nonce(),
            pins if pinned or new.pinned_count else layout.NONE,
            context.summary_version or layout.NONE,
            cut.first_seq,
            b"%d%b" % (max(0, tokens), layout.encode_elements(length - counted_count, hidden)),
            layout.NONE if cut.block is None else cut.block,
            f"{ending.kept_count} {len(ending.elements)} {len(new.elements)} {counted_count}",
            ending.from_seq,
            f"{len(cut.changes)} {len(cut.dropped)}",
            *ending.elements,
            *new.elements,
            *cut.fields(),
        ),
    )
    return Call(keys.session_id, (command,), decode, script, resend(7, 3), op=op)

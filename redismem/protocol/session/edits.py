"""An edit of a session: the session as read, what changes, and the call that makes the change. No I/O.

The plans are beside this file, by subject: each is a function of a `View`, and returns an `Edit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from redismem.context.context import Context
from redismem.events import Op
from redismem.messages.decoding import split_elements
from redismem.messages.gaps import place_of
from redismem.messages.message import STAMP_BYTES, Message
from redismem.protocol import layout, replies, scripts
from redismem.protocol.appends import append_limits, pins_argument
from redismem.protocol.call import Argument, Call, context_reads, script_call
from redismem.protocol.clock import time_argument
from redismem.protocol.ids import nonce
from redismem.protocol.layout import PINNED
from redismem.protocol.session.calls import SessionCalls

T = TypeVar("T")

_ANY = "*"
"""The argument for a value that may have changed since the session was read."""


@dataclass(frozen=True, slots=True)
class View:
    """A session as it was read: its context, and the stored bytes."""

    context: Context
    fields: Mapping[bytes, bytes]
    elements: Sequence[bytes]

    def element(self, message: Message) -> bytes:
        """Return the stored element of a message of the context."""
        place = self.place(message.seq)
        return self.elements[place] if place >= 0 else self.pinned_elements(self.pinned_field(message.seq))[message.seq]

    def place(self, seq: int) -> int:
        """Return the place of a seq in the window; negative before the window."""
        return place_of(seq, self.context.first_seq, self.context.last_seq, self.elements)

    @property
    def removed_count(self) -> int:
        """The number of seqs without a message. Raises ValueError."""
        return int(self.fields.get(layout.REMOVED, b"0"))

    def removed_field(self, count: int) -> bytes:
        """Return the new value of the field `removed`, after `count` more seqs have no message. Raises ValueError."""
        return b"%d" % (self.removed_count + count)

    def pinned_field(self, seq: int) -> bytes:
        """Return the field of the pinned messages that left the window together with this one.

        Raises:
            KeyError: no pinned message of this seq has left the window.
        """
        for name in self.fields:
            if name.startswith(PINNED) and seq in layout.pinned_seqs(name):
                return name
        raise KeyError(seq)

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


class BlockChange(NamedTuple):
    """The change of a block of originals, which must still be as read."""

    number: int
    before: bytes
    """The block as read."""
    after: bytes = b""
    """The new block; empty removes it."""
    signature: bytes = b""
    dropped: Sequence[str] = ()
    """The other fields of the originals that go: vectors of its messages, and blocks that it replaces."""


class Replaced(NamedTuple):
    """The change of one element of the window, which must still be as read."""

    before: bytes
    after: bytes
    """The new element; empty removes the old one, because a gap beside it stands for its seq."""
    body: bytes = b""
    """The field of the originals that keeps the old element; empty drops it."""


@dataclass(slots=True)
class Edit:
    """One change of a session. It is made as a whole, or not at all if the session is not as it was read."""

    op: Op
    next_seq: int
    """The first seq of the window afterwards."""
    if_last_seq: bool = False
    """True if messages that were appended since forbid the edit."""
    if_edited: bool = True
    """True if other edits since forbid it, except those that only move the window."""
    if_summaries: bool = False
    """True if summaries that were committed since forbid it."""
    seen: tuple[int | bytes, bytes] | None = None
    """An element of the window by its place, or a field of the state, which must still be as read."""

    head_count: int = 0
    """The elements that leave the head of the window."""
    kept_count: int | None = None
    """The elements at the head of the window that stay; None means all."""
    replaced: Mapping[int, Replaced] = field(default_factory=dict)
    """The elements that change, by place."""
    pushed: Sequence[bytes] = ()
    """The elements that follow, with their stamps."""
    new: Sequence[bytes] = ()
    """The messages that follow these, without stamps."""

    message_count: int = 0
    """The change of the number of messages in the window, without pinned ones."""
    tokens: int = 0
    """The change of their tokens."""
    seqs_count: int = 0
    """The seqs that the edit takes."""
    pinned_count: int = 0
    """The change of the number of pinned messages, in the window or not."""
    pinned_bytes: int = 0
    sets: dict[bytes, bytes] = field(default_factory=dict)
    """The fields of the state to set."""
    drops: list[bytes] = field(default_factory=list)
    """The fields of the state that go."""

    first_block: int | None = None
    """The number of the first block of originals that goes."""
    bodies: range | None = None
    """The seqs of which bodies stay in the originals; None means all."""
    blocks: Sequence[BlockChange] = ()
    originals: Mapping[bytes, bytes] = field(default_factory=dict)
    """Further fields of the originals to set."""
    dropped: Sequence[str] = ()
    """Further fields of the originals that go."""

    log: str | None = "ended"
    """The fate of the log of the last turn, which may quote what goes.

    ended removes it unless its turn runs; lost removes it and ends its turn; None keeps it.
    """
    is_use: bool = False
    """True if the edit counts as activity: the session lives on, and becomes overdue if its window is too long."""
    version: bytes | None = field(default_factory=nonce)
    """The version of the window afterwards. None leaves it: messages that only leave the head change no other edit."""
    token: bytes | None = None
    """Names the edit among the last appends; empty if a repeated edit need not be recognised, None makes one."""


def edit(calls: SessionCalls, view: View, change: Edit, decode: Callable[[Any], T]) -> Call[T]:
    """Build the call that makes an edit of a session as it was read.

    `decode` gets the reply of edit.lua: 0 means that the session has changed since.
    """
    context, lists = view.context, _build_lists(change)
    starts = list(accumulate(map(len, lists), initial=len(scripts.load("edit").arguments) + 1))
    place, seen = change.seen or (None, b"")
    has_bodies = layout.counters(view.fields[layout.COUNTERS]).has_bodies
    has_pins = change.pinned_count or change.pinned_bytes
    named = {
        "now_ms": time_argument(calls.clock),
        "limits": append_limits(calls.settings).text if change.is_use else None,
        "token": calls.sender.token(None) if change.token is None else change.token,
        "epoch": context.epoch,
        "first_seq": context.first_seq,
        "last_seq": context.last_seq if change.if_last_seq else _ANY,
        "edited": context.window_version or None if change.if_edited else _ANY,
        "committed": context.summary_version or None if change.if_summaries else _ANY,
        "place": place,
        "seen": seen,
        "nonce": change.version,
        "pins": pins_argument(calls.settings, change.pinned_count, change.pinned_bytes) if has_pins else None,
        "next_seq": change.next_seq,
        "changes": " ".join(map(str, _count_changes(view, change))),
        "block": change.first_block,
        "bodies": f"{change.bodies.start} {change.bodies.stop}" if change.bodies is not None and has_bodies else None,
        "kept": _encode_kept(change),
        "log": change.log,
        "starts": " ".join(map(str, starts[1:-1])),
    }
    more = [argument for part in lists for argument in part]
    return script_call(change.op, calls.keys, decode, named, script="edit", more=more)


def _count_changes(view: View, change: Edit) -> tuple[int, int, int, int, int]:
    """Return the changes of the counters: seqs, tokens, uncounted elements, hidden seqs, bytes of large messages."""
    stop = len(view.elements) if change.kept_count is None else change.kept_count
    leaving = [*view.elements[: change.head_count], *view.elements[stop:]]
    coming = [*change.pushed, *(element + bytes(STAMP_BYTES) for element in change.new)]
    more_count = len(coming) - len(leaving) - sum(not each.after for each in change.replaced.values())
    leaving += [each.before for each in change.replaced.values()]
    coming += [each.after for each in change.replaced.values()]
    more_large = layout.large_bytes(coming) - layout.large_bytes(leaving)
    hidden = more_count - change.seqs_count + change.next_seq - view.context.first_seq
    return change.seqs_count, change.tokens, more_count - change.message_count, hidden, more_large


def _encode_kept(change: Edit) -> str | None:
    """Return the places of the first and the last element that stay in the window; None if all stay."""
    if change.head_count:
        return f"{change.head_count} -1"
    if change.kept_count is None:
        return None
    return f"0 {change.kept_count - 1}" if change.kept_count else "1 0"


def _build_lists(change: Edit) -> list[list[Argument]]:
    """Return the lists of edit.lua in their order."""
    blocks = [(each, (b"%d" % each.number, b"s%d" % each.number)) for each in change.blocks]
    sets = dict(change.originals)
    gone = list[Argument](change.dropped)
    for block, names in blocks:
        if block.after:
            sets |= zip(names, (block.after, block.signature), strict=True)
        gone += [*block.dropped, *(() if block.after else names)]
    return [
        [part for place, each in change.replaced.items() for part in (place, *each)],
        [part for block, (name, _) in blocks for part in (name, block.before)],
        [*change.pushed],
        [*change.new],
        [part for pair in sets.items() for part in pair],
        gone,
        [part for pair in change.sets.items() for part in pair],
        [*change.drops],
    ]

"""Replace and unpin: one message takes the place of another. No I/O."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.messages.encoding import encode_message
from redismem.messages.message import STAMP_BYTES, Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_block, dictionary_of, is_merged
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import encode_field, replaced_fields
from redismem.protocol import layout
from redismem.protocol.session.append import check_size, encode_with_pin
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import BlockChange, Edit, Replaced, View
from redismem.protocol.session.pages import Block


class Replacement(NamedTuple):
    """A new message with the seq and stamp of the old one, and its element without the stamp."""

    message: Message
    element: bytes


def replacement(calls: SessionCalls, old: Message, new: Message | dict[str, Any]) -> Replacement:
    """Encode the message that replaces `old`. It is pinned if `old` is pinned.

    Raises:
        InvalidMessage: the new message cannot be stored.
        TooLarge: the new message exceeds `max_message_bytes`.
    """
    given = (new if isinstance(new, Message) else Message.from_openai(new)).mark_replaced()
    element, tokens, pinned = encode_with_pin(given, old.pinned, calls.count_tokens)
    check_size(calls.settings, element, calls.keys.session_id, "the replacement")
    given = given.with_pin(pinned)
    stored = Message.restored(given.to_openai(), given.beside, old.seq, tokens, old.stored_ms, old.epoch)
    return Replacement(stored, element)


def unpin(old: Message) -> Replacement:
    """Encode the message without its pin."""
    stored = old.with_pin(False)
    return Replacement(stored, encode_message(stored, lambda _: old.tokens)[0])


def replace(
    view: View, old: Message, changed: Replacement, block: BlockChange | None = None, *, if_last_seq: bool = False
) -> Edit:
    """Plan the replacement of a message.

    `block` is the change of the block of originals, if the message has left the window. `if_last_seq` is as in `Edit`.
    """
    new, before = changed.message, view.element(old)
    after = changed.element + before[-STAMP_BYTES:]
    # The element tells whether the message has changed, so other edits since do not matter.
    edit = Edit(Op.REPLACE, view.context.first_seq, if_last_seq=if_last_seq, if_edited=False, is_use=True)
    edit.pinned_count = new.pinned - old.pinned
    edit.pinned_bytes = len(after) * new.pinned - len(before) * old.pinned
    edit.blocks = () if block is None else (block,)
    edit.dropped = (f"b{old.seq}",) if old.shortened else ()
    if old.seq >= view.context.first_seq:
        edit.replaced = {view.place(old.seq): Replaced(before, after)}
        edit.message_count = -edit.pinned_count
        edit.tokens = new.tokens * (not new.pinned) - old.tokens * (not old.pinned)
    else:
        _replace_in_group(view, edit, old.seq, after if new.pinned else None)
    return edit


def _replace_in_group(view: View, edit: Edit, seq: int, after: bytes | None) -> None:
    """Change a message that has left the window together with other pinned ones; None removes it from these."""
    name = view.pinned_field(seq)
    group = view.pinned_elements(name)
    edit.seen = name, b"".join(group.values())
    elements = {other: element if other != seq else after for other, element in group.items()}
    left = {other: element for other, element in elements.items() if element is not None}
    edit.sets |= {layout.pinned_field(list(left)): b"".join(left.values())} if left else {}
    edit.drops += [name] if name not in edit.sets else []


def encode_block_change(
    view: View, old: Message, changed: Replacement, block: Block, known: Dictionaries
) -> BlockChange | None:
    """Encode a block of originals again, with the replacement. A large block takes a second.

    `known` must contain the block's dictionary. None leaves an unreadable block unchanged.
    """
    with contextlib.suppress(Undecodable):  # the next turn that recalls it puts it into quarantine
        first_seq, elements = decode_block(*block, known)
        if first_seq <= old.seq < first_seq + len(elements):
            elements[old.seq - first_seq] = changed.element + view.element(old)[-STAMP_BYTES:]
            used = known.get(dictionary_of(block.stored) or 0)
            after, signature = encode_field(first_seq, elements, view.context.epoch, used, zone=view.context.zone)
            gone = [f"v{block_number(old.seq)}", *(replaced_fields(block.number) if is_merged(block.stored) else ())]
            return BlockChange(block.number, block.stored, after, signature, gone)
    return None

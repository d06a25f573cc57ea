"""What is kept of messages when a summary covers them: blocks, and what each is found by. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.messages.compression import expanded
from redismem.messages.decoding import decode_messages, is_gap
from redismem.messages.message import Message
from redismem.originals.blocks import blocks_of, encode_block, first_seq_of
from redismem.originals.dictionaries import Dictionary
from redismem.originals.signatures import TEXT_CHARS, encode_signature
from redismem.text.plain import pieces


def texts_of(message: Message) -> list[str]:
    """Who says a message, if it has a name, and what it says, as far as it is looked at; nothing for a gap."""
    if is_gap(message):
        return []
    name = message.to_openai().get("name")
    said = [text for _, text in pieces(message, TEXT_CHARS)]
    return [name[:TEXT_CHARS], *said] if isinstance(name, str) else said


def kept_fields(
    first_seq: int, elements: Sequence[bytes], epoch: str, dictionary: Dictionary | None = None
) -> dict[bytes, bytes]:
    """The fields of the originals that keep these elements, which follow each other: blocks, and their signatures."""
    fields: dict[bytes, bytes] = {}
    for number, seq, taken in blocks_of(first_seq, elements):
        texts = [texts_of(message) for message in decode_messages(taken, seq, epoch)]
        plain = [expanded(element) for element in taken]
        fields[b"%d" % number] = encode_block(seq, plain, dictionary)
        fields[b"s%d" % number] = encode_signature(seq - first_seq_of(number), texts, sum(map(len, plain)))
    return fields

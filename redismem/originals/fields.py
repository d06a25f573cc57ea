"""What is kept of messages when a summary covers them: blocks, and what each is found by. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.messages.compression import expand_element
from redismem.messages.decoding import decode_messages, is_gap
from redismem.messages.message import Message
from redismem.originals.blocks import encode_block, first_seq_of, split_into_blocks
from redismem.originals.dictionaries import Dictionary
from redismem.originals.signatures import TEXT_CHARS, encode_signature
from redismem.text.plain import pieces


def searchable_texts(message: Message) -> list[str]:
    """Who says a message, if it has a name, and what it says, as far as it is looked at; nothing for a gap."""
    if is_gap(message):
        return []
    name = message.to_openai().get("name")
    said = [text for _, text in pieces(message, TEXT_CHARS)]
    return [name[:TEXT_CHARS], *said] if isinstance(name, str) else said


def encode_fields(
    first_seq: int, elements: Sequence[bytes], epoch: str, dictionary: Dictionary | None = None
) -> dict[bytes, bytes]:
    """The fields of the originals that keep these elements, which follow each other: blocks, and their signatures."""
    fields: dict[bytes, bytes] = {}
    for number, seq, taken in split_into_blocks(first_seq, elements):
        texts = [searchable_texts(message) for message in decode_messages(taken, seq, epoch)]
        plain = [expand_element(element) for element in taken]
        fields[b"%d" % number] = encode_block(seq, plain, dictionary)
        fields[b"s%d" % number] = encode_signature(seq - first_seq_of(number), texts, sum(map(len, plain)))
    return fields

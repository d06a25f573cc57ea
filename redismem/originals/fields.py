"""Encode summarised messages into fields of the originals: blocks and their signatures. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.messages.compression import expand_element
from redismem.messages.decoding import decode_messages, is_gap
from redismem.messages.message import Message, day_of
from redismem.originals.blocks import encode_block, first_seq_of, split_into_blocks
from redismem.originals.dictionaries import Dictionary


def searchable_texts(message: Message) -> list[str]:
    """Return the name of a message, if any, and its texts up to TEXT_CHARS; [] for a gap."""
    if is_gap(message):
        return []
    from redismem.originals.signatures import TEXT_CHARS  # stems and texts cost a cold start, and no append needs them
    from redismem.text.plain import pieces

    name = message.name
    texts = [text for _, text in pieces(message, TEXT_CHARS)]
    return [name[:TEXT_CHARS], *texts] if isinstance(name, str) else texts


def encode_fields(
    first_seq: int, elements: Sequence[bytes], epoch: str, dictionary: Dictionary | None = None
) -> dict[bytes, bytes]:
    """Return the blocks and signatures of consecutive elements, as fields of the originals hash."""
    from redismem.originals.signatures import encode_signature

    fields: dict[bytes, bytes] = {}
    for number, seq, part in split_into_blocks(first_seq, elements):
        messages = decode_messages(part, seq, epoch)
        texts = [searchable_texts(message) for message in messages]
        days = [day_of(message.time_ms) for message in messages]
        plain = [expand_element(element) for element in part]
        fields[b"%d" % number] = encode_block(seq, plain, dictionary)
        size_bytes = sum(map(len, plain))
        fields[b"s%d" % number] = encode_signature(seq - first_seq_of(number), texts, size_bytes, days)
    return fields

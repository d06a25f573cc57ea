"""Encode summarised messages into fields of the originals: blocks and their signatures. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from redismem.formats.sections import name_of
from redismem.formats.tool_groups import call_ids
from redismem.messages.compression import expand_element
from redismem.messages.decoding import decode_messages, is_gap
from redismem.messages.message import Message
from redismem.originals.blocks import (
    BLOCK_COUNT,
    MERGED_BLOCKS,
    block_number,
    encode_block,
    first_seq_of,
    head_of,
    is_merged,
    split_at_blocks,
    split_into_blocks,
)
from redismem.originals.dictionaries import Dictionary

if TYPE_CHECKING:
    from redismem.originals.signatures import Signature

MERGED_BYTES = 128 * 1024
"""The largest merged block, decompressed. A reader of one message decompresses all, so larger blocks stay single."""
_PLAIN, _PLAIN_ROLES = {"role", "content"}, ("user", "assistant")
_NO_SIGNATURES: Mapping[int, bytes] = MappingProxyType({})


def searchable_texts(message: Message) -> list[str]:
    """Return the name of a message, if any, and its texts up to TEXT_CHARS; [] for a gap."""
    if is_gap(message):
        return []
    from redismem.originals.signatures import TEXT_CHARS  # stems and texts cost a cold start, and no append needs them
    from redismem.text.data_runs import replace_data
    from redismem.text.plain import pieces

    visible = message.visible
    # A fast path for most messages of a chat: the slow one finds the same words.
    if type(visible) is dict and visible.keys() == _PLAIN and visible["role"] in _PLAIN_ROLES:
        text = visible["content"]
        if type(text) is str and len(text) <= TEXT_CHARS and text.isascii() and text.isprintable():
            return [replace_data(text)]
    name = name_of(visible) or visible.get("name")
    texts = [text for _, text in pieces(message, TEXT_CHARS)]
    return [name[:TEXT_CHARS], *texts] if isinstance(name, str) else texts


def _signed_texts(message: Message) -> list[str]:
    """Return the texts that the signature of a message indexes, after a mark if a user may tell a standing rule."""
    from redismem.originals.signatures import RULE_MARK
    from redismem.text.rules import is_rule

    texts = searchable_texts(message)
    is_marked = message.role == "user" and any(map(is_rule, texts)) and not any(call_ids(message))
    return [RULE_MARK, *texts] if is_marked else texts


def sign_messages(messages: Sequence[Message], block_bytes: int) -> bytes:
    """Return the signature of a block of `block_bytes` that contains these messages, at least one."""
    from redismem.originals.signatures import encode_signature

    return encode_signature(0, *_texts_by_place(messages, block_bytes))


def index_messages(messages: Sequence[Message], block_bytes: int) -> Signature:
    """Return the decoded signature of a block of `block_bytes` that contains these messages, at least one."""
    from redismem.originals.signatures import make_signature

    return make_signature(0, *_texts_by_place(messages, block_bytes))


def _texts_by_place(messages: Sequence[Message], block_bytes: int) -> tuple[list[list[str]], int, list[int]]:
    """Return the texts and the day of the message at each position of a block, with the size of the block."""
    texts: list[list[str]] = [[] for _ in range(BLOCK_COUNT)]
    days = [messages[0].day] * BLOCK_COUNT
    for message in messages:
        place = (message.seq - 1) % BLOCK_COUNT
        texts[place], days[place] = _signed_texts(message), message.day
    return texts, block_bytes, days


def sign_parts(
    parts: Mapping[int, tuple[int, Sequence[bytes]]], epoch: str, zone: str | None = None
) -> dict[int, bytes]:
    """Return the signature of each block, from its first seq and elements. Raise Undecodable, UnsupportedFormat."""
    return {
        number: sign_messages(decode_messages(elements, first_seq, epoch, zone), sum(map(len, elements)))
        for number, (first_seq, elements) in parts.items()
    }


def encode_fields(
    first_seq: int,
    elements: Sequence[bytes],
    epoch: str,
    dictionary: Dictionary | None = None,
    signatures: Mapping[int, bytes] = _NO_SIGNATURES,
    zone: str | None = None,
) -> dict[bytes, bytes]:
    """Return the blocks and signatures of consecutive elements, as fields of the originals hash.

    `signatures` are the known ones of full blocks among them, by block number, which need not be made again. `zone` is
    that of the session.
    """
    fields: dict[bytes, bytes] = {}
    blocks = [(seq, [expand_element(each) for each in part]) for _, seq, part in split_into_blocks(first_seq, elements)]
    for seq, plain in _merge_blocks(blocks):
        block, signature = encode_field(seq, plain, epoch, dictionary, signatures, zone)
        fields[b"%d" % block_number(seq)], fields[b"s%d" % block_number(seq)] = block, signature
    return fields


def _merge_blocks(blocks: Sequence[tuple[int, list[bytes]]]) -> Iterator[tuple[int, list[bytes]]]:
    """Merge each four full blocks that belong together and are small enough."""
    at = 0
    while at < len(blocks):
        first_seq, merged = blocks[at]
        four = blocks[at : at + MERGED_BLOCKS]
        number = block_number(first_seq)
        is_whole = number == head_of(number) and all(len(part) == BLOCK_COUNT for _, part in four)
        if is_whole and four[-1][0] == first_seq_of(number + MERGED_BLOCKS - 1):
            every = [element for _, part in four for element in part]
            if sum(map(len, every)) <= MERGED_BYTES:
                merged = every
        yield first_seq, merged
        at += max(1, len(merged) // BLOCK_COUNT)


def encode_field(
    first_seq: int,
    elements: Sequence[bytes],
    epoch: str,
    dictionary: Dictionary | None = None,
    signatures: Mapping[int, bytes] = _NO_SIGNATURES,
    zone: str | None = None,
) -> tuple[bytes, bytes]:
    """Return a block of these elements and its signatures, as stored. 64 elements are a merged block.

    `signatures` are the known ones, by block number. `zone` is that of the session.
    """
    from redismem.originals.signatures import encode_signature, join_signatures

    plain = [expand_element(element) for element in elements]
    encoded: list[bytes] = []
    for seq, part in split_at_blocks(first_seq, plain):
        if (known := signatures.get(block_number(seq))) is not None:
            encoded.append(known)
            continue
        messages = decode_messages(part, seq, epoch, zone)
        texts = [_signed_texts(message) for message in messages]
        days = [message.day for message in messages]
        encoded.append(encode_signature((seq - 1) % BLOCK_COUNT, texts, sum(map(len, part)), days))
    return encode_block(first_seq, plain, dictionary), join_signatures(encoded)


def merged_number(fields: Mapping[bytes, bytes]) -> int | None:
    """Return the number of the first merged block among these fields. None means that there is none."""
    return min((int(name) for name, value in fields.items() if name.isdigit() and is_merged(value)), default=None)


def replaced_fields(number: int) -> list[str]:
    """Return the fields of the blocks that a merged block replaces, without its own number."""
    return [f"{kind}{other}" for other in range(number + 1, number + MERGED_BLOCKS) for kind in ("", "s")]

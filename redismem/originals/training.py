"""Train a compression dictionary: the phrases that several people share, behind the built-in dictionary. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import zstandard

from redismem.messages.decoding import decode_messages
from redismem.messages.message import Opaque
from redismem.messages.values import encode_plain
from redismem.originals.blocks import BUILT_IN_CONTENT
from redismem.originals.columns import encode_columns, split_element
from redismem.originals.dictionaries import LEVEL, with_id
from redismem.originals.phrases import Tokens, find_phrases, join_phrases, split_text

LARGEST_BYTES = 160 * 1024

# With fixed parameters, training takes a fraction of a second; if zstd searches for the best ones, a minute.
_SEGMENT_BYTES, _DMER_BYTES = 1_000, 8
# The code tables of a zstd dictionary end with these three offsets; its content follows.
_OFFSETS = b"\x01\0\0\0\x04\0\0\0\x08\0\0\0"
_DIGIT = re.compile(rb"\d")

Blocks = Mapping[str, Sequence[Sequence[bytes]]]
"""For each person, the elements of some blocks, in format version 1."""


def train_dictionary(blocks: Blocks) -> bytes | None:
    """Return the content of a dictionary, or None if the blocks have too little in common."""
    texts_of: dict[str, list[str]] = {}
    tokens_of: dict[str, list[Tokens]] = {}
    for person, of_person in blocks.items():
        texts = texts_of[person] = []
        lines = tokens_of[person] = []
        for elements in of_person:
            shapes, block_texts = _split_block(elements)
            texts += block_texts
            lines.append(shapes)
        lines += [split_text(text, with_digits=False) for text in texts]
    tables = _train_tables([encode_columns(elements) for of_person in blocks.values() for elements in of_person])
    if tables is None:
        return None
    most_bytes = LARGEST_BYTES - len(tables) - len(BUILT_IN_CONTENT)
    phrases = join_phrases(find_phrases(tokens_of), texts_of, most_bytes)
    return with_id(tables + BUILT_IN_CONTENT + phrases) if phrases else None


def _train_tables(samples: Sequence[bytes]) -> bytes | None:
    """Return the head and the code tables of a dictionary that zstd trains: lengths of codes, without any text."""
    try:
        trained = zstandard.train_dictionary(LARGEST_BYTES, list(samples), k=_SEGMENT_BYTES, d=_DMER_BYTES, level=LEVEL)
    except (zstandard.ZstdError, ValueError, MemoryError):
        return None
    tables, offsets, _ = trained.as_bytes().partition(_OFFSETS)
    return tables + offsets if offsets else None


def _split_block(elements: Sequence[bytes]) -> tuple[Tokens, list[str]]:
    """Return the shape of each message, and all texts. Messages that blocks store whole are left out."""
    shapes: list[bytes | None] = []
    texts: list[str] = []
    for element, message in zip(elements, decode_messages(elements, 1, ""), strict=True):
        row, payload, element_texts = split_element(element)
        if row is None or isinstance(message.visible, Opaque):
            shapes.append(None)
            continue
        shape = encode_plain(_without_numbers(payload))
        shapes.append(None if _DIGIT.search(shape) else shape)
        texts += element_texts
    return shapes, texts


def _without_numbers(value: Any) -> Any:
    """Replace every number by 0: it may be a number of one person, and shapes that differ in numbers are alike."""
    if isinstance(value, list):
        return [_without_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_numbers(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (str, bool)) else 0

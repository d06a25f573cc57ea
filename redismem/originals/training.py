"""Train a compression dictionary: the phrases that several people share, behind the built-in dictionary. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import zstandard

from redismem.messages.decoding import decode_messages
from redismem.messages.message import Opaque
from redismem.messages.values import encode_plain
from redismem.originals.built_in import EARLIER_CONTENT
from redismem.originals.columns import encode_columns, split_element
from redismem.originals.dictionaries import LEVEL, with_id
from redismem.originals.phrases import Tokens, find_phrases, join_phrases, split_text

LARGEST_BYTES = 64 * 1024
_LEAST_BYTES = 16 * 1024
"""The limit of a dictionary that is trained on little."""
# A dictionary saves a tenth of the raw bytes or more, so one of a twelfth of what it was trained on soon pays.
_SHARE = 12

# With fixed parameters, training takes a fraction of a second; if zstd searches for the best ones, a minute.
_SEGMENT_BYTES, _DMER_BYTES = 1_000, 8
# The code tables of a zstd dictionary end with these three offsets; its content follows.
_OFFSETS = b"\x01\0\0\0\x04\0\0\0\x08\0\0\0"
_DIGIT = re.compile(rb"\d")


class Person(NamedTuple):
    """The owner of sessions, or a session without an owner, which may be of the same person as another session."""

    name: str
    is_owner: bool


Blocks = Mapping[Person, Sequence[Sequence[bytes]]]
"""For each person, the elements of some blocks, in format version 1."""


def train_dictionary(blocks: Blocks) -> bytes | None:
    """Return the content of a dictionary, or None if the blocks have too little in common.

    Text with a digit counts only if it is of an owner: a number that three sessions contain may be one person's.
    """
    texts_of: list[list[str]] = []
    lines_of: list[list[Tokens]] = []
    for person, of_person in blocks.items():
        texts: list[str] = []
        lines: list[Tokens] = []
        for elements in of_person:
            shapes, block_texts = _split_block(elements, person.is_owner)
            texts += block_texts
            lines.append(shapes)
        texts_of.append(texts)
        lines_of.append(lines + [split_text(text, person.is_owner) for text in texts])
    tables = _train_tables([encode_columns(elements) for of_person in blocks.values() for elements in of_person])
    if tables is None:
        return None
    sample_bytes = sum(len(each) for of_person in blocks.values() for elements in of_person for each in elements)
    most_bytes = min(LARGEST_BYTES, max(_LEAST_BYTES, sample_bytes // _SHARE)) - len(tables) - len(EARLIER_CONTENT)
    phrases = join_phrases(find_phrases(lines_of), texts_of, most_bytes)
    return with_id(tables + EARLIER_CONTENT + phrases) if phrases else None


def _train_tables(samples: Sequence[bytes]) -> bytes | None:
    """Return the head and the code tables of a dictionary that zstd trains: lengths of codes, without any text."""
    try:
        trained = zstandard.train_dictionary(LARGEST_BYTES, list(samples), k=_SEGMENT_BYTES, d=_DMER_BYTES, level=LEVEL)
    except (zstandard.ZstdError, ValueError, MemoryError):
        return None
    tables, offsets, _ = trained.as_bytes().partition(_OFFSETS)
    return tables + offsets if offsets else None


def _split_block(elements: Sequence[bytes], with_digits: bool) -> tuple[Tokens, list[str]]:
    """Return the shape of each message, and all texts. Messages that blocks store whole are left out."""
    shapes: list[bytes | None] = []
    texts: list[str] = []
    for element, message in zip(elements, decode_messages(elements, 1, ""), strict=True):
        row, payload, element_texts = split_element(element)
        if row is None or isinstance(message.visible, Opaque):
            shapes.append(None)
            continue
        shape = encode_plain(_without_numbers(payload))
        shapes.append(None if not with_digits and _DIGIT.search(shape) else shape)
        texts += element_texts
    return shapes, texts


def _without_numbers(value: Any) -> Any:
    """Replace every number by 0: it may be a number of one person, and shapes that differ in numbers are alike."""
    if isinstance(value, list):
        return [_without_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_numbers(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (str, bool)) else 0

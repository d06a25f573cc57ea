"""Texts that are recognised wherever they are, and all texts that Redis has of a namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redismem import Memory
from redismem.messages.compression import expand_element
from redismem.originals.blocks import decode_block
from support.stored import read_namespace

_WORDS = ("harbour", "lantern", "meadow", "orchard", "pebble", "quarry", "saddle", "thistle", "velvet", "willow")


def unique_text(number: int) -> str:
    """Return a sentence of ten words that no other number's sentence has."""
    return " ".join(f"{word}{number}q" for word in _WORDS)


def eight_word_runs(text: str) -> list[str]:
    """Return all runs of eight words."""
    words = text.split()
    return [" ".join(words[at : at + 8]) for at in range(len(words) - 7)]


async def left_texts(raw: Any, memory: Memory) -> str:
    """Return all that Redis has of the memory's namespace as text, with blocks of originals decompressed."""
    parts: list[bytes] = []
    for key, (content, _) in (await read_namespace(raw, memory.store.keys.namespace)).items():
        parts += [key, *_flatten(content)]
        if b":originals:" in key:
            for field, block in content.items():
                if field.isdigit():
                    parts += map(expand_element, decode_block(int(field), block, memory.store.dictionaries)[1])
    return b"\n".join(parts).decode("utf-8", "replace")


def _flatten(content: Any) -> Iterator[bytes]:
    if isinstance(content, dict):
        content = [part for pair in content.items() for part in pair]
    if isinstance(content, list | tuple):
        for part in content:
            yield from _flatten(part)
    else:
        yield content if isinstance(content, bytes) else str(content).encode()

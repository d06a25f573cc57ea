"""Dictionaries for tests: trained on sessions that are made up."""

from __future__ import annotations

import random
from functools import cache

from redismem.messages.encoding import encode_message
from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.dictionaries import Dictionary, build_samples, train_dictionary

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
ENDINGS = ("ment", "ing", "ed", "s")
WORDS = [f"{one}{two}" for one in ("ship", "order", "parcel", "invoice", "return") for two in ENDINGS]
Blocks = dict[str, list[list[bytes]]]


def element(text: object) -> bytes:
    return encode_message({"role": "user", "content": text})[0] + STAMP


def sessions(seed: int, count: int = 8) -> Blocks:
    """Three blocks of each of so many sessions; each session has a word of its own."""
    chosen = random.Random(seed)
    return {
        str(number): [
            [element(f"secret{number}x " + " ".join(chosen.choices(WORDS, k=20))) for _ in range(BLOCK_COUNT)]
            for _ in range(3)
        ]
        for number in range(count)
    }


@cache
def made(version: int, seed: int = 0) -> Dictionary:
    content = train_dictionary(build_samples(sessions(seed)))
    assert content is not None
    return Dictionary(version, 7, content)

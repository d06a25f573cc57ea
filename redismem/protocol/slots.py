"""Hash tags that spread a namespace's shards evenly over the slots of a cluster. No I/O.

A cluster has 16,384 slots; the slot of a key is the CRC-16/XMODEM of its hash tag. The slots of tags with a plain
number are random: with 64 shards on 12 masters, the fullest master gets 1.5 times its share. So each tag ends in four
letters, chosen so that the tag gets the desired slot. The slot of shard i of s is i * 16,384 / s slots after the first
shard's, rounded down, so any n consecutive slots contain n * s / 16,384 shards, rounded up or down. The first shard has
the slot of the namespace's own keys, so that the shards of many small namespaces are spread too.
"""

from __future__ import annotations

import binascii
from functools import lru_cache

SLOT_COUNT = 16_384
_LETTER_COUNT = 4
_FIRST_LETTER = ord("h")
_NIBBLE_BITS = 4


def slot_of(tag: bytes) -> int:
    """Return the cluster slot of all keys with this hash tag."""
    return binascii.crc_hqx(tag, 0) % SLOT_COUNT


@lru_cache(maxsize=64)
def shard_tags(namespace: str, shard_count: int) -> tuple[str, ...]:
    """Return the hash tag of each shard, by its number: `shop:07kqwt`.

    The result is deterministic, so that every process computes the same tags for a namespace.
    """
    first = slot_of(namespace.encode())
    return tuple(
        _tag_at(f"{namespace}:{shard:02d}", (first + shard * SLOT_COUNT // shard_count) % SLOT_COUNT)
        for shard in range(shard_count)
    )


def _tag_at(name: str, slot: int) -> str:
    """Append to the name the four letters that move it to the slot."""
    missing, number = slot_of(f"{name}{_letters(0)}".encode()) ^ slot, 0
    for bit, effect, letters in _STEPS:
        if missing >> bit & 1:
            missing, number = missing ^ effect, number ^ letters
    return name + _letters(number)


def _letters(number: int) -> str:
    """Encode a 16-bit number as four letters, h to w.

    Flipping one bit of the number always flips the same bits of one letter: `h` and `p` differ in the same bits as `i`
    and `q`.
    """
    nibbles = (number >> _NIBBLE_BITS * place & 15 for place in range(_LETTER_COUNT))
    return "".join(chr(_FIRST_LETTER + nibble) for nibble in nibbles)


def _steps() -> list[tuple[int, int, int]]:
    """Return (slot bit, slot bits flipped with it, letter bits to flip) for each slot bit, highest first.

    A CRC is linear: flipping the same bits at the end of a text flips the same bits of its CRC, whatever precedes them.
    So one fixed combination of letter bits flips each of the 14 bits of a slot.
    """
    steps: dict[int, tuple[int, int]] = {}
    for letters in (1 << bit for bit in range(_NIBBLE_BITS * _LETTER_COUNT)):
        effect = slot_of(_letters(letters).encode()) ^ slot_of(_letters(0).encode())
        for bit in sorted(steps, reverse=True):
            if effect >> bit & 1:
                effect, letters = effect ^ steps[bit][0], letters ^ steps[bit][1]
        if effect:
            steps[effect.bit_length() - 1] = effect, letters
    return [(bit, *steps[bit]) for bit in sorted(steps, reverse=True)]


_STEPS = _steps()

"""Where shards lie among the slots of a cluster: their hash tags are chosen so that they are evenly spread. No I/O.

A cluster has 16,384 slots, and a key's is CRC-16/XMODEM of its tag. Tags that are merely numbered fall where they
fall: of 64, the fullest of 12 masters then has half as much again as its share. So each tag ends in four letters that
bring it to its slot. Shard i of s lies i * 16,384 / s slots behind the first, rounded down, so any n slots in a row
hold n * s / 16,384 of them, rounded up or down. The first lies where the namespace's own keys do, so that many small
namespaces do not meet at one place.
"""

from __future__ import annotations

import binascii
from functools import lru_cache

SLOT_COUNT = 16_384
_LETTER_COUNT = 4
_FIRST_LETTER = ord("h")
_NIBBLE_BITS = 4


def slot_of(tag: bytes) -> int:
    """The slot of all keys with this tag."""
    return binascii.crc_hqx(tag, 0) % SLOT_COUNT


@lru_cache(maxsize=64)
def shard_tags(namespace: str, shard_count: int) -> tuple[str, ...]:
    """What stands between the braces in the keys of each shard, by its number: `shop:07kqwt`.

    The same in every process, whatever the namespace.
    """
    first = slot_of(namespace.encode())
    return tuple(
        _at(f"{namespace}:{shard:02d}", (first + shard * SLOT_COUNT // shard_count) % SLOT_COUNT)
        for shard in range(shard_count)
    )


def _at(name: str, slot: int) -> str:
    """The name, with the letters that bring it to the slot."""
    missing, number = slot_of(f"{name}{_letters(0)}".encode()) ^ slot, 0
    for bit, effect, letters in _STEPS:
        if missing >> bit & 1:
            missing, number = missing ^ effect, number ^ letters
    return name + _letters(number)


def _letters(number: int) -> str:
    """Four letters, h to w, for a number of 16 bits.

    To change a bit of the number is to change certain bits of a letter, whatever the other bits are: `h` and `p` differ
    in the same as `i` and `q` do.
    """
    nibbles = (number >> _NIBBLE_BITS * place & 15 for place in range(_LETTER_COUNT))
    return "".join(chr(_FIRST_LETTER + nibble) for nibble in nibbles)


def _steps() -> list[tuple[int, int, int]]:
    """A slot's highest bit that is to be changed, what else in the slot this changes, and how the letters change.

    A CRC is linear: a change of the same bits of a text changes the same bits of its CRC, whatever stands before. So
    14 of the 16 bits of the letters can be combined into one for each bit of a slot, once for all.
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

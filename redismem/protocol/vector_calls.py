"""The calls that keep vectors of messages beside the blocks of originals. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from redismem.protocol import scripts
from redismem.protocol.call import Call, evalsha
from redismem.protocol.keys import SessionKeys
from redismem.protocol.page_calls import Block


class Beside(NamedTuple):
    """A block of originals, and the field with the vectors of its messages."""

    block: Block
    vectors: bytes | None


def lengths(keys: SessionKeys, numbers: Sequence[int]) -> Call[dict[int, int]]:
    """How long the vectors of these blocks are, in bytes; 0: there are none."""
    commands = tuple(("HSTRLEN", keys.originals, f"v{number}") for number in numbers)
    return Call(keys.session_id, commands, lambda *found: dict(zip(numbers, found, strict=True)), op="vectors")


def beside(keys: SessionKeys, number: int) -> Call[Beside | None]:
    """A block with its vectors; None if there is none of this number."""

    def decode(found: Sequence[bytes | None]) -> Beside | None:
        stored, vectors = found
        return None if stored is None else Beside(Block(number, stored), vectors)

    return Call(keys.session_id, (("HMGET", keys.originals, number, f"v{number}"),), decode, op="vectors")


def set_vectors(keys: SessionKeys, block: Block, vectors: bytes) -> Call[bool]:
    """Keeps them beside this block; False: it is another one by now."""
    script = scripts.load("set_vectors")
    command = evalsha(script, (keys.originals,), (block.number, block.stored, vectors))
    return Call(keys.session_id, (command,), bool, script, op="set_vectors")

"""Calls about message vectors, stored beside the blocks of originals. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from redismem.events import Op
from redismem.protocol.call import Call, script_call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session.pages import Block, find_blocks, with_heads


class BlockVectors(NamedTuple):
    """A block of originals, and the field with the vectors of its messages."""

    number: int
    block: Block
    """The block as stored, which may be a merged one."""
    vectors: bytes | None


def lengths(keys: SessionKeys, numbers: Sequence[int]) -> Call[dict[int, int]]:
    """Build a call that reads the length of the vectors in bytes, by block number.

    0 means that the block has no vectors.
    """
    commands = tuple(("HSTRLEN", keys.originals, f"v{number}") for number in numbers)
    return Call(keys.session_id, commands, lambda *sizes: dict(zip(numbers, sizes, strict=True)), op=Op.VECTORS)


def read_block(keys: SessionKeys, number: int) -> Call[BlockVectors | None]:
    """Build a call that reads a block with its vectors. None means that the block does not exist."""

    fields = with_heads([number])

    def decode(values: Sequence[bytes | None]) -> BlockVectors | None:
        blocks = find_blocks([number], dict(zip(fields, values, strict=False)))
        return BlockVectors(number, blocks[0], values[-1]) if blocks else None

    return Call(keys.session_id, (("HMGET", keys.originals, *fields, f"v{number}"),), decode, op=Op.VECTORS)


def set_vectors(keys: SessionKeys, beside: BlockVectors, vectors: bytes) -> Call[bool]:
    """Build a call that writes a block's vectors. False means that the block has changed since it was read."""
    named = {"block": beside.number, "stored": beside.block.number, "seen": beside.block.stored, "vectors": vectors}
    return script_call(Op.SET_VECTORS, keys, bool, named)

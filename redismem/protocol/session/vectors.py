"""Calls about message vectors, stored beside the blocks of originals or in a vector set. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.originals.vectors import MARK_BYTES
from redismem.protocol.call import Call, Command, script_call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session.pages import Block, find_blocks, with_heads


class BlockVectors(NamedTuple):
    """A block of originals, and the field with the vectors of its messages."""

    number: int
    block: Block
    """The block as stored, which may be a merged one."""
    vectors: bytes | None


BLOCK_FIELD = "v"
"""Field prefix before a block number, for vectors that are beside the block only."""
SET_FIELD = "w"
"""Field prefix before a block number, for vectors that are in the vector set as well."""


def lengths(keys: SessionKeys, numbers: Sequence[int], kind: str = BLOCK_FIELD) -> Call[dict[int, int]]:
    """Build a call that reads the length of the vectors in bytes, by block number.

    0 means that the block has no vectors.
    """
    commands = tuple(("HSTRLEN", keys.originals, f"{kind}{number}") for number in numbers)
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


def move_vectors(
    keys: SessionKeys, number: int, vectors: bytes, model: bytes, rows: Iterable[tuple[bytes, bytes]]
) -> Call[int]:
    """Build a call that moves a full block's vectors into the vector set.

    `rows` are pairs of `set_element` and `nearest.floats`. The call returns 1 if it moved the vectors, and 0 if the
    block's vectors have changed. It returns -1 if the server has no vector sets, or the ACL forbids them.
    """
    named = {"block": number, "seen": vectors, "model": model}
    pairs = [part for row in rows for part in row]
    return script_call(Op.SET_VECTORS, keys, int, named, script="move_vectors", more=pairs)


def set_element(mark: bytes, seq: int) -> bytes:
    """Return a message's element in the vector set. Because of the mark, models never share an element."""
    return b"%s%d" % (mark, seq)


def find_nearest(keys: SessionKeys, mark: bytes, vector: bytes, limit: int) -> Call[dict[int, float]]:
    """Build a call that finds the messages in the vector set that are nearest to a vector. It returns cosine by seq.

    The server compares the vector with every element, in a thread, in about a microsecond per message.
    """

    def decode(reply: Any) -> dict[int, float]:
        pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
        # The server maps the cosine to a similarity from 0 to 1.
        return {int(name[MARK_BYTES:]): 2 * float(score) - 1 for name, score in pairs if name[:MARK_BYTES] == mark}

    command = ("VSIM", keys.vectors, "FP32", vector, "WITHSCORES", "COUNT", limit, "TRUTH")
    return Call(keys.session_id, (command,), decode, op=Op.RECALL)


def read_set_vectors(keys: SessionKeys, numbers: Sequence[int]) -> Call[dict[int, bytes | None]]:
    """Build a call that reads the vectors beside blocks that are also in the vector set, by block number."""
    command: Command = ("HMGET", keys.originals, *(f"{SET_FIELD}{number}" for number in numbers))
    return Call(keys.session_id, (command,), lambda values: dict(zip(numbers, values, strict=True)), op=Op.RECALL)
